"""Random tensors, and the generators whose state decides them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.recording.record import recorded
from ...autograd.transforms import running
from ...backends import backend_of, started
from ...backends.batched.arrays import plain
from ...cuda import seeding
from ...device import default_device
from ...device import device as Device
from ...ops import random as draw
from ...runtime.contexts import Context
from ...runtime.kept import Switch
from ...tensor import Tensor, make
from .factories import _finish, _numpy_dtype, _shape, laid_as

__all__ = [
    "Generator", "bernoulli", "default_generator", "fork_rng", "get_rng_state",
    "initial_seed", "manual_seed", "multinomial", "normal", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "seed", "set_rng_state",
]  # fmt: skip
TAKES_OUT = frozenset([
    "bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm",
])  # fmt: skip

FIRST_SEED = 67280421310721  # of a new Generator, PyTorch's


def _checked(seed: Any) -> int:
    """A seed as 64 bits without sign; negative ones count back from the end, as in PyTorch."""
    seed = int(seed)
    if not -(2**63) <= seed < 2**64:
        raise RuntimeError(
            f"Overflow when unpacking long long: got seed {seed}, want [-2**63, 2**64)"
        )
    return seed % 2**64


class Generator:
    """A stream of random numbers on one device, with a state of its own.

    Pass it as `generator=` to whatever draws; a new one is always seeded alike.

    >>> import cugrad as torch
    >>> g = torch.Generator().manual_seed(0)
    >>> state = g.get_state()
    >>> a = torch.rand(3, generator=g, device="cpu")
    >>> b = torch.rand(3, generator=g.set_state(state), device="cpu")
    >>> torch.equal(a, b)
    True
    """

    __slots__ = ("_source",)

    def __init__(self, device: Device | str | int = "cpu") -> None:
        self._source = draw.Source(Device(device), FIRST_SEED)

    @property
    def device(self) -> Device:
        """Where the numbers are drawn."""
        return self._source.device

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed`; RuntimeError when it does not fit 64 bits."""
        self._source.reseed(_checked(seed))
        return self

    def seed(self) -> int:
        """Starts a stream with a seed that cannot be predicted, and returns the seed."""
        seed = draw.fresh_seed()
        self._source.reseed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed the stream began with."""
        return self._source.seed

    def get_state(self) -> Tensor:
        """The state of the stream: a uint8 tensor in host memory."""
        return make(np.array(self._source.rng.get_state()))

    def set_state(self, new_state: Tensor) -> Generator:
        """Goes to a state of get_state(); TypeError unless uint8, RuntimeError for a wrong size."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not dtypes.uint8:
            got = new_state.dtype if isinstance(new_state, Tensor) else type(new_state).__name__
            raise TypeError(
                f"expected a torch.ByteTensor, but got {got}; "
                "want what get_state() or get_rng_state() returned"
            )
        if not isinstance(new_state._array, np.ndarray):
            raise TypeError("expected a torch.ByteTensor in host memory; want new_state.cpu()")
        self._source.rng.set_state(new_state._array)
        return self

    def clone_state(self) -> Generator:
        """A generator in the same state that goes its own way."""
        return Generator(self.device).set_state(self.get_state())

    def __repr__(self) -> str:
        return f"<torch.Generator device='{self.device}'>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (str(self.device), self.get_state())


def _restored(device: str, state: Tensor) -> Generator:
    return Generator(device).set_state(state)


def _default_of(device: Device) -> Generator:
    generator = Generator.__new__(Generator)
    generator._source = draw.default_source(device)
    return generator


default_generator = _default_of(Device("cpu"))
seeding.register(lambda index: _default_of(Device("cuda", index)))


def manual_seed(seed: int) -> Generator:
    """Seeds the default generators of all devices; returns that of the CPU.

    RuntimeError when the seed does not fit 64 bits.

    >>> import cugrad as torch
    >>> a = torch.manual_seed(1) and torch.rand(2)
    >>> b = torch.manual_seed(1) and torch.rand(2)
    >>> torch.equal(a, b)
    True
    """
    draw.seed_everything(_checked(seed))
    return default_generator


def seed() -> int:
    """Seeds the default generators with a number that cannot be predicted, and returns it."""
    fresh = draw.fresh_seed()
    draw.seed_everything(fresh)
    return fresh


def initial_seed() -> int:
    """The seed of the CPU's default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator: a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Puts the CPU's default generator into a state of get_rng_state()."""
    default_generator.set_state(new_state)


class fork_rng(Switch, Context):
    """What is drawn inside leaves no trace on the default generators, of the CPU and of `devices`.

    `devices` are CUDA devices, all of them by default; with `device_type` "cpu" there are no
    others than the CPU, and nothing is drawn on "meta".
    """

    def __init__(
        self, devices: Iterable[Any] | None = None, enabled: bool = True, *,
        device_type: str | None = None,
    ) -> None:  # fmt: skip
        kind = None if device_type is None else Device(device_type).type
        self.devices = None if devices is None else list(devices)
        if kind == "cpu":
            self.devices = []
        self.enabled, self.device_type = enabled and kind != "meta", device_type

    def as_is(self) -> list[tuple[Generator, Tensor]]:
        generators = default_generators(self.devices) if self.enabled else []
        return [(generator, generator.get_state()) for generator in generators]

    def change(self, before: list[tuple[Generator, Tensor]]) -> None:
        pass

    def put_back(self, before: list[tuple[Generator, Tensor]]) -> None:
        for generator, state in before:
            generator.set_state(state)

    def clone(self) -> fork_rng:
        return type(self)(self.devices, self.enabled, device_type=self.device_type)


def default_generators(devices: Iterable[Any] | None = None) -> list[Generator]:
    """The generators that are used where none is named: the CPU's, and those of `devices`, which
    are all CUDA devices by default.
    """
    from ...cuda.devices import device_count

    if devices is None:
        devices = range(device_count())
        if any(backend.device_type == "simulated" for backend in started()):
            devices = [*devices, "simulated:0"]
    places = [Device(device) for device in devices]
    generators = [_default_of(Device(place.type, place.index)) for place in places]
    return [default_generator, *generators]


# Tensors ------------------------------------------------------------------------------------------


def source_of(generator: Generator | None) -> draw.Source | None:
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    return None if generator is None else generator._source


def _place(device: Any) -> Device:
    return default_device() if device is None else Device(device)


def _float_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    chosen = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if not (chosen.is_floating_point or chosen.is_complex):
        raise NotImplementedError(
            f'"{name}" not implemented for {chosen}, want a floating-point or complex dtype'
        )
    return chosen.numpy


def rand(
    *sizes: Any, size: Any = None, generator: Generator | None = None, dtype: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Uniform on [0, 1): `rand(2, 3)`, `rand((2, 3))` or `rand(size=(2, 3))`."""
    kind = _float_dtype("rand", dtype)
    array = draw.uniform(source_of(generator), _shape(sizes, size), kind, _place(device))
    return _finish(array, requires_grad)


def randn(
    *sizes: Any, size: Any = None, generator: Generator | None = None, dtype: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Standard normal: `randn(2, 3)`, `randn((2, 3))` or `randn(size=(2, 3))`."""
    kind = _float_dtype("randn", dtype)
    array = draw.normal(source_of(generator), _shape(sizes, size), kind, _place(device))
    return _finish(array, requires_grad)


def randint(
    low: Any = None, high: Any = None, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Integers in [low, high): `randint(3, 5, (2,))`, or from 0: `randint(10, (2,))`.

    int64 unless `dtype` says otherwise; RuntimeError unless low < high.
    """
    if size is None:
        low, high, size = 0, low, high
    elif low is None or high is None:  # `randint(high=3, size=(2,))`, `randint(3, size=(2,))`
        low, high = 0, low if high is None else high
    if not isinstance(size, (tuple, list)) or isinstance(high, (tuple, list)):
        raise TypeError(
            "randint: want randint(high, size) or randint(low, high, size), with a tuple as size"
        )
    low, high = _whole("low", low), _whole("high", high)
    kind = np.dtype(np.int64) if dtype is None else _numpy_dtype(dtype)
    check_bounds(low, high, dtypes.of(kind))
    array = draw.integers(
        source_of(generator), low, high, _shape(tuple(size)), kind, _place(device)
    )
    return _finish(array, requires_grad)


def _whole(name: str, value: Any, function: str = "randint") -> int:
    try:
        return operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{function}(): argument '{name}' must be int, not {kind}") from None


def check_bounds(low: int, high: int, kind: dtypes.dtype) -> None:
    """RuntimeError unless [low, high) holds integers, all in the range of a dtype."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if kind.is_complex:
        raise RuntimeError(
            "check_random_bounds handles only integral, floating-point and boolean types, got "
            f"{kind}"
        )
    for name, value in (("from", low), ("to - 1", high - 1)):
        if kind.category == dtypes.BOOL:
            fits = 0 <= value <= 1
        elif kind.category == dtypes.INTEGER:
            info = np.iinfo(kind.numpy)
            fits = info.min <= value <= info.max
        else:
            fits = abs(value) <= {"float16": 65504}.get(kind.name, 3e38)
        if not fits:
            raise RuntimeError(f"{name} is out of bounds for {kind}: got {value}")


def randperm(
    n: int, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers 0 to n-1 in random order, int64 unless `dtype` says otherwise."""
    n = _whole("n", n, "randperm")
    if n < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {n}: [{n}]; n must be non-negative"
        )
    target = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    if target.category == dtypes.BOOL or target.is_complex:
        raise NotImplementedError(f'"randperm" not implemented for {target}')
    dtypes.check_fits(n, target)
    kind = np.dtype(np.int64) if dtype is None else _numpy_dtype(dtype)
    return _finish(draw.permutation(source_of(generator), n, kind, _place(device)), requires_grad)


def _drawn_like(
    input: Tensor, function: Callable[..., Tensor], generator: Generator | None, dtype: Any,
    device: Any, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """What is drawn in the shape, dtype, device and order in memory of `input`, or as is named."""
    how = {
        "generator": generator, "dtype": input.dtype if dtype is None else dtype,
        "device": input.device if device is None else device,
    }  # fmt: skip
    array = laid_as(input._array, lambda shape: function(shape, **how)._array)
    return _finish(array, requires_grad)


def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Uniform on [0, 1), in the shape, dtype and device of `input`."""
    return _drawn_like(input, rand, generator, dtype, device, requires_grad)


def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Standard normal, in the shape, dtype and device of `input`."""
    return _drawn_like(input, randn, generator, dtype, device, requires_grad)


def randint_like(
    input: Tensor, low: Any = None, high: Any = None, *, generator: Generator | None = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Integers in [low, high), or from 0 where one number is given, in the shape, dtype and device
    of `input`.
    """
    low, high = (0, low) if high is None else (0 if low is None else low, high)
    return _drawn_like(input, partial(randint, low, high), generator, dtype, device, requires_grad)


def can_be_read(x: Tensor) -> bool:
    """Whether its values lie in host memory, one by one: not on a GPU, not batched by vmap."""
    return x.is_cpu and backend_of(x._array).readable


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """0s and 1s in the shape and dtype of `input`, 1 with probability `input`, or `p` if given."""
    array = input._array
    if p is not None:
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    elif not input.dtype.is_floating_point:
        raise NotImplementedError(f'"bernoulli" not implemented for {input.dtype} as probability')
    elif can_be_read(input) and not bool(((array >= 0) & (array <= 1)).all()):
        raise RuntimeError("bernoulli: Expected p_in >= 0 && p_in <= 1 to be true, but got false")
    chance = array if p is None else p
    told = source_of(generator), chance, array.shape, input.device, array.dtype
    drawn = make(draw.bernoulli(*told))
    return recorded.copy(input, drawn) if input._requires_grad else drawn


def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Normal of a mean and a standard deviation: of `size` where both are numbers, else of theirs.

    RuntimeError for a negative number as `std`.
    """
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    if isinstance(std, Tensor) and std.is_complex():
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if isinstance(std, Tensor) and can_be_read(std) and bool((std._array.real < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    if not isinstance(std, Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if not tensors:
        if size is None:
            raise TypeError("normal: got two numbers, want also size, such as size=(2, 3)")
        kind = _float_dtype("normal", dtype)
        array = draw.normal(
            source_of(generator), _shape(tuple(size)), kind, _place(device), mean, std
        )
        return _finish(array, requires_grad)
    shape = np.broadcast_shapes(*[tuple(x.shape) for x in tensors])
    kind = _float_dtype("normal", tensors[0].dtype)
    mean, std = (x._array if isinstance(x, Tensor) else x for x in (mean, std))
    told = source_of(generator), shape, kind, tensors[0].device
    drawn = make(draw.normal_around(*told, mean, std))
    if tensors[0]._requires_grad and tensors[0]._array.shape == shape:
        return recorded.copy(tensors[0], drawn)
    return drawn


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Indices drawn from the rows of weights `input`, (n,) or (m, n), which need not sum to 1.

    Returns int64 of shape (num_samples,) or (m, num_samples); RuntimeError for more samples than
    weights without replacement. Then those are drawn whose exponential clocks, of rates `input`,
    ring first. Source: Efraimidis & Spirakis 2006, doi:10.1016/j.ipl.2005.11.003.
    """
    if input.dim() not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {input.dim()}")
    n = input.shape[-1]
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            "multinomial only supports floating-point dtypes for input, got: "
            f"{dtypes.type_name(input.dtype)}"
        )
    if num_samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {num_samples}")
    if not replacement and num_samples > n:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
            f"got {num_samples} of {n}"
        )
    array, double = input._array, np.dtype(np.float64)
    for level in running.levels:
        if level.randomness == "different":  # inside vmap: each example draws from the weights
            array = level.lift(array)
    backend = backend_of(array)
    with backend.use_device(input.device.index), backend.quiet():
        weights = array.reshape(-1, n).astype(double)
        if can_be_read(input):
            _check_weights(plain(weights).reshape(-1, n))
        rows, xp, source = weights.shape[0], backend.xp, source_of(generator)
        if replacement:  # each row's cumulated share, row after row: one ascending sequence
            starts = xp.arange(rows, dtype=double)[:, None]
            cumulated = xp.cumsum(weights, 1)
            steps = xp.reshape(cumulated / cumulated[:, -1:] + starts, -1)
            at = draw.uniform(source, (rows, num_samples), double, input.device) + starts
            positions = xp.searchsorted(steps, at, side="right")
            chosen = xp.minimum(positions - xp.arange(rows)[:, None] * n, n - 1)
        else:
            clocks = draw.exponential(source, weights.shape, double, input.device)
            rings = xp.where(weights > 0, clocks / weights, xp.inf)
            chosen = xp.argsort(rings, axis=1)[:, :num_samples]
        chosen = xp.ascontiguousarray(chosen.astype(np.int64, copy=False))
        return make(chosen.reshape((*array.shape[:-1], num_samples)))


def _check_weights(weights: np.ndarray[Any, Any]) -> None:
    """RuntimeError for weights that are no distribution."""
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if (weights.sum(1) <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
