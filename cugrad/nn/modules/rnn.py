"""Recurrent layers, and their cells, which compute one step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.mode import state
from ...dtypes import dtype as DType
from ...functions.creation.factories import empty, zeros
from ...runtime.absent import explain
from ...tensor import Tensor
from .. import init
from ..parameter import Parameter
from ..recurrent import stacks
from ..recurrent.checks import GATES, check_arguments, check_state_dims
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

NAMES = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Deprecated: `tensor.index_select(dim, permutation)`."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` "
        "instead", FutureWarning, stacklevel=2,
    )  # fmt: skip
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: `num_layers` layers, in one direction or two.

    The weights of layer k are `weight_ih_lk` (gates · hidden_size, inputs), `weight_hh_lk` (gates ·
    hidden_size, outputs), `bias_ih_lk`, `bias_hh_lk`, and `weight_hr_lk` (proj_size, hidden_size)
    of projections; those of the other direction end in `_reverse`. All start uniform on
    ±1/√hidden_size.

    ValueError and TypeError for arguments out of their range, or of another type.
    """

    _of_older_files = {"proj_size": 0}

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = dropout, bidirectional, proj_size
        check_arguments(self)
        self.dropout = float(dropout)
        self._all_weights = [
            self._add_weights(layer, direction, {"device": device, "dtype": dtype})
            for layer in range(num_layers) for direction in range(self._directions)
        ]  # fmt: skip
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _outputs(self) -> int:
        """The outputs of a layer in one direction."""
        return self.proj_size or self.hidden_size

    def _add_weights(self, layer: int, direction: int, how: dict[str, Any]) -> list[str]:
        """Makes the weights of a layer in a direction; their names."""
        gates = GATES[self.mode] * self.hidden_size
        inputs = self._outputs * self._directions if layer else self.input_size
        shapes: dict[str, Any] = {"weight_ih": (gates, inputs), "weight_hh": (gates, self._outputs)}
        if self.bias:
            shapes.update(bias_ih=gates, bias_hh=gates)
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = [f"{name}_l{layer}{'_reverse' * direction}" for name in shapes]
        for name, shape in zip(names, shapes.values(), strict=True):
            setattr(self, name, Parameter(empty(shape, **how)))
        return names

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: weights need not lie together here."""

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = self.hidden_size**-0.5
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """ValueError for another dtype than that of the weights, RuntimeError for a wrong shape."""
        dtype = self._flat_weights[0].dtype
        if input.dtype is not dtype and state.autocast is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). "
                f"Convert input: input.to({dtype}), or convert model: model.to({input.dtype})"
            )
        dims = 3 if batch_sizes is None else 2
        if input.dim() != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )

    def _state_sizes(self, input: Tensor, batch_sizes: Tensor | None) -> list[tuple[int, ...]]:
        """The shapes of the states that an input wants."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0 if self.batch_first else 1)
        widths = [self._outputs] + [self.hidden_size] * (self.mode == "LSTM")
        return [(self.num_layers * self._directions, batch, width) for width in widths]

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, ...]:
        """The shape of the hidden state that an input wants."""
        return self._state_sizes(input, batch_sizes)[0]

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, ...],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:  # fmt: skip
        """RuntimeError unless a state has this shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Checks an input and its states, as `check_input` and `check_hidden_size` do."""
        self.check_input(input, batch_sizes)
        sizes = self._state_sizes(input, batch_sizes)
        if self.mode != "LSTM":
            self.check_hidden_size(hidden, sizes[0])
            return
        for k, size in enumerate(sizes):
            text = f"Expected hidden[{k}] size {{}}, got {{}}"
            self.check_hidden_size(hidden[k], size, text)

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States with their sequences in another order."""
        if permutation is None:
            return hx
        if isinstance(hx, Tensor):
            return hx.index_select(1, permutation)
        return tuple([h.index_select(1, permutation) for h in hx])

    def extra_repr(self) -> str:
        """Sizes, and what is not as usual."""
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False,
                 "dropout": 0, "bidirectional": False}  # fmt: skip
        settings = [f"{name}={getattr(self, name)}" for name, value in usual.items()
                 if getattr(self, name) != value]  # fmt: skip
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *settings])

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of the last layer, and the last states of all layers.

        For an input (L, N, input_size), (N, L, input_size) with `batch_first`, (L, input_size) for
        one sequence, or a PackedSequence. States, in `hx` and in the result, have shape (layers ·
        directions, N, hidden_size), without N for one sequence; they are zero where none are given.
        """
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        if input.dim() not in (2, 3):
            text = " tensor instead" if self.mode.startswith("RNN") else " instead"
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D{text}"
            )
        batch_dim, batched = 0 if self.batch_first else 1, input.dim() == 3
        check_state_dims(self.mode, hx, batched)
        if not batched:
            input = input.unsqueeze(batch_dim)
            hx = self._each(hx, lambda h: h.unsqueeze(1))
        hx = self._begin(input, hx, None)
        output, *last = self._compute(input, hx, batch_first=self.batch_first)
        states = last[0] if self.mode != "LSTM" else tuple(last)
        if batched:
            return output, states
        return output.squeeze(batch_dim), self._each(states, lambda h: h.squeeze(1))

    def _run_packed(self, packed: PackedSequence, hx: Any) -> Any:
        data, sizes, order, back = packed
        hx = self._begin(data, None if hx is None else self.permute_hidden(hx, order), sizes)
        output, *last = self._compute(data, sizes, hx)
        states = self.permute_hidden(last[0] if self.mode != "LSTM" else tuple(last), back)
        return PackedSequence(output, sizes, order, back), states

    def _compute(self, *input: Any, **layout: Any) -> tuple[Tensor, ...]:
        """The outputs and the last states, by the function of the mode."""
        results: tuple[Tensor, ...] = getattr(stacks, NAMES[self.mode])(
            *input, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training,
            self.bidirectional, **layout,
        )  # fmt: skip
        return results

    @staticmethod
    def _each(hx: Any, change: Any) -> Any:
        """A state, or each of several, changed."""
        if hx is None or isinstance(hx, Tensor):
            return None if hx is None else change(hx)
        return tuple([change(h) for h in hx])

    def _begin(self, input: Tensor, hx: Any, batch_sizes: Tensor | None) -> Any:
        """The states to begin with, checked."""
        if hx is None:
            sizes = self._state_sizes(input, batch_sizes)
            states = [zeros(size, dtype=input.dtype, device=input.device) for size in sizes]
            hx = states[0] if self.mode != "LSTM" else tuple(states)
        self.check_forward_args(input, hx, batch_sizes)
        return hx


class RNN(RNNBase):
    """h' = tanh(W x + b + U h + d), or relu in the place of tanh: Elman's network.

    Arguments as of RNNBase, without `mode` and `proj_size`; the fourth is `nonlinearity`, "tanh" or
    "relu".

    >>> import cugrad as torch
    >>> rnn = torch.nn.RNN(3, 5, num_layers=2)
    >>> output, h = rnn(torch.randn(7, 4, 3))
    >>> output.shape, h.shape
    (torch.Size([7, 4, 5]), torch.Size([2, 4, 5]))
    """

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1,
            nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
            dropout: float = 0.0, bidirectional: bool = False, *, device: Any = None,
            dtype: DType | None = None,
        ) -> None: ...  # fmt: skip
    else:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            _refuse_projections(kwargs)
            if len(args) > 3:
                nonlinearity, args = args[3], args[:3] + args[4:]
            else:
                nonlinearity = kwargs.pop("nonlinearity", "tanh")
            if nonlinearity not in ("tanh", "relu"):
                raise ValueError(
                    f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
                )
            super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
            self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory: gates i, f, o decide what a cell takes in, keeps and shows.

    i, f, g, o = σ, σ, tanh, σ of W x + b + U h + d; c' = f c + i g; h' = o tanh(c'), and with
    `proj_size` h' is projected. `hx`, and the second result, are (h, c). Arguments as of RNNBase,
    without `mode`. Source: Hochreiter & Schmidhuber 1997, in the form with forget gates.

    >>> import cugrad as torch
    >>> lstm = torch.nn.LSTM(3, 5, batch_first=True, bidirectional=True)
    >>> output, (h, c) = lstm(torch.randn(4, 7, 3))
    >>> output.shape, h.shape, c.shape
    (torch.Size([4, 7, 10]), torch.Size([2, 4, 5]), torch.Size([2, 4, 5]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: Any = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, proj_size, device, dtype,
        )  # fmt: skip

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, ...]:
        """The shape of the cell state that an input wants."""
        return self._state_sizes(input, batch_sizes)[1]


class GRU(RNNBase):
    """Gated recurrent units: r and z decide what of the state counts, and what of it stays.

    r, z = σ of W x + b + U h + d; n = tanh(Wₙ x + bₙ + r (Uₙ h + dₙ)); h' = (1 - z) n + z h.
    Arguments as of RNNBase, without `mode` and `proj_size`. Source:
    https://arxiv.org/abs/1406.1078, with the reset gate behind the product.

    >>> import cugrad as torch
    >>> gru = torch.nn.GRU(3, 5)
    >>> output, h = gru(torch.randn(7, 3))
    >>> output.shape, h.shape
    (torch.Size([7, 5]), torch.Size([1, 5]))
    """

    if TYPE_CHECKING:

        def __init__(
            self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
            batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *,
            device: Any = None, dtype: DType | None = None,
        ) -> None: ...  # fmt: skip
    else:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            _refuse_projections(kwargs)
            super().__init__("GRU", *args, **kwargs)


def _refuse_projections(kwargs: dict[str, Any]) -> None:
    if "proj_size" in kwargs:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNNCellBase(Module):
    """What the cells have in common: `weight_ih` (num_chunks · hidden_size, input_size),
    `weight_hh` (num_chunks · hidden_size, hidden_size), `bias_ih` and `bias_hh`, all uniform on
    ±1/√hidden_size.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        for name, size in (("ih", input_size), ("hh", hidden_size)):
            weight = Parameter(empty((rows, size), device=device, dtype=dtype))
            setattr(self, f"weight_{name}", weight)
        for name in ("bias_ih", "bias_hh"):
            bias_vector = Parameter(empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, bias_vector)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = self.hidden_size**-0.5 if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """Sizes, and what is not as usual."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, function: str, input: Tensor, hx: Any) -> Any:
        """The next state of a cell, or its next states."""
        several = function == "lstm_cell"
        kind = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{kind}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        states: Sequence[Tensor] = [] if hx is None else hx if several else [hx]
        for k, h in enumerate(states):
            if h.dim() not in (1, 2):
                name = f"hx[{k}]" if several else "hidden"
                raise ValueError(f"{kind}: Expected {name} to be 1D or 2D, got {h.dim()}D instead")
        batched = input.dim() == 2
        if not batched:
            input, states = input.unsqueeze(0), [h.unsqueeze(0) for h in states]
        if hx is None:
            size = (input.shape[0], self.hidden_size)
            states = [zeros(size, dtype=input.dtype, device=input.device)] * (1 + several)
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        next_states = getattr(stacks, function)(input, states if several else states[0], *weights)
        if batched:
            return next_states
        return tuple([h.squeeze(0) for h in next_states]) if several else next_states.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of an RNN: the next state, (N, hidden_size), of an input (N, input_size).

    >>> import cugrad as torch
    >>> torch.nn.RNNCell(3, 5)(torch.randn(4, 3)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state; RuntimeError for an unknown `nonlinearity`."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        next_h: Tensor = self._step(f"rnn_{self.nonlinearity}_cell", input, hx)
        return next_h


class LSTMCell(RNNCellBase):
    """One step of an LSTM: the next (h, c), (N, hidden_size) each, of an input (N, input_size).

    >>> import cugrad as torch
    >>> h, c = torch.nn.LSTMCell(3, 5)(torch.randn(4, 3))
    >>> h.shape, c.shape
    (torch.Size([4, 5]), torch.Size([4, 5]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next states; zeros come before where none are given."""
        next_states: tuple[Tensor, Tensor] = self._step("lstm_cell", input, hx)
        return next_states


class GRUCell(RNNCellBase):
    """One step of a GRU: the next state, (N, hidden_size), of an input (N, input_size).

    >>> import cugrad as torch
    >>> torch.nn.GRUCell(3, 5)(torch.randn(4, 3)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state; zeros come before where none is given."""
        next_h: Tensor = self._step("gru_cell", input, hx)
        return next_h


explain(__name__)
