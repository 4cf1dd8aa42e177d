"""The cells of recurrent layers, which compute one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes import dtype as DType
from ...functions.creation.factories import empty, zeros
from ...tensor import Tensor
from .. import init
from ..parameter import Parameter
from ..recurrent import stacks
from .module import Module

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


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
            given = Parameter(empty(rows, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, given)
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
        found = getattr(stacks, function)(input, states if several else states[0], *weights)
        if batched:
            return found
        return tuple([h.squeeze(0) for h in found]) if several else found.squeeze(0)


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
        found: Tensor = self._step(f"rnn_{self.nonlinearity}_cell", input, hx)
        return found


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
        found: tuple[Tensor, Tensor] = self._step("lstm_cell", input, hx)
        return found


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
        found: Tensor = self._step("gru_cell", input, hx)
        return found
