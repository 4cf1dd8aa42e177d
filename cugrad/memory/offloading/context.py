"""Saved tensors in host memory: `save_on_cpu` as PyTorch has it, and `offload` with its knobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...autograd.graph import saved_tensors_hooks
from ...autograd.recording.views import is_part_of_leaf
from ...backends import BY_ARRAY_TYPE, backend_of
from ...backends.batched.arrays import plain
from ...backends.several import copy_of
from ...tensor import Tensor, make
from ..constants import Constant
from ..geometry import root_of
from ..report import Report, report_of
from ..sizes import bytes_of, size
from .engine import CopyEngine, engine_of
from .options import OffloadOptions
from .span import SavedView
from .stats import OffloadStats

__all__ = ["offload", "save_on_cpu"]

DEVICES = ("cuda", "cpu", "simulated")


class _Offloading(saved_tensors_hooks):
    """What the contexts share: which tensors go to the engine, and how they come back."""

    moves_host_tensors = False
    is_placement = True
    usual = OffloadOptions()  # what is not said in the repr

    def __init__(
        self, options: OffloadOptions, device_type: str | None, filter: Any = None
    ) -> None:
        if device_type is not None and device_type not in DEVICES:
            raise ValueError(
                f"{type(self).__name__}: device_type: got {device_type!r}, want 'cuda', "
                "'simulated' or 'cpu'"
            )
        if filter is not None and not callable(filter):
            raise TypeError(
                f"{type(self).__name__}: filter: got {filter!r}, want a function of a Tensor"
            )
        self.device_type, self.filter = device_type, filter
        self._options, self._engines = options, dict[int, CopyEngine]()

    @property
    def stats(self) -> OffloadStats:
        """What passed, counted; see `OffloadStats`."""
        return self._options.counts.stats

    def change(self, before: Any) -> Any:
        super().change(before)
        return self

    def put_back(self, before: Any) -> None:
        super().put_back(before)
        for engine in self._engines.values():
            engine.release_finished()

    def __repr__(self) -> str:
        """What was asked for, and what went through so far."""
        asked, said = self._options, []
        for name in ("min_bytes", "keep_last", "lookahead", "backlog", "host_limit"):
            value = getattr(asked, name)
            if value != getattr(self.usual, name):
                said.append(f"{name}={value if value is None else size(value)}")
        if asked.codec is not None:
            said.append(f"compress={asked.codec.name!r}")
        if asked.spill is not None:
            said.append(f"directory={asked.spill.directory!r}")
        stats = self.stats
        return (
            f"<{type(self).__name__}({', '.join(said)}): {stats.saved_tensors:,} tensors saved, "
            f"{size(stats.saved_bytes)}; {size(stats.moved_to_host_bytes)} moved out, "
            f"{size(stats.moved_back_bytes)} back>"
        )

    def report(self) -> Report:
        """Bytes, stalls, rates, and the least time that the link allows; waits for the device.

        A dict that prints as a page; `.plot(path)` draws it. See docs/offload.md.
        """
        return report_of(self._options, list(self._engines.values()))

    def pack_hook(self, tensor: Tensor) -> Any:
        """A SavedView of what leaves; the tensor itself, if it stays."""
        packed, stats = self._packed(tensor), self._options.counts.stats
        stats.saved_tensors += 1
        stats.saved_bytes += tensor._array.nbytes
        return packed

    def _packed(self, tensor: Tensor) -> Any:
        array, options = plain(tensor._array), self._options
        backend = backend_of(array)
        if backend.device_type == "cpu" and not self.moves_host_tensors:
            coded = options.codec is not None and options.codec.applies(array.dtype)
            if not coded or is_part_of_leaf(tensor):
                options.counts.stats.already_on_host += array.nbytes
                return self._as_it_is(tensor)
        elif self.device_type not in (None, backend.device_type) and not backend.stands_in:
            return tensor
        elif is_part_of_leaf(tensor):
            options.counts.stats.keep("leaf", array.nbytes)
            return tensor
        if self.filter is not None and not self.filter(tensor):
            options.counts.stats.keep("filter", array.nbytes)
            return self._as_it_is(tensor)
        index = backend.device_index(array)
        engine = engine_of(backend, index)
        self._engines[id(engine)] = engine
        with backend.use_device(index):
            packed = engine.pack(tensor, options)
        return self._as_it_is(tensor) if packed is None else packed

    @staticmethod
    def _as_it_is(tensor: Tensor) -> Any:
        """What stays where it is, and is copied if it is to be changed in place; parameters are
        not, nor what lies in a vmap.
        """
        array = tensor._array
        if is_part_of_leaf(tensor) or type(array) not in BY_ARRAY_TYPE:
            return tensor
        if not array.size or tensor._rare is not None and tensor._rare.turned is not None:
            # no one is told of a write to nothing, or to what a conjugate shows that is gone
            return make(copy_of(array, "K"))
        return Constant(tensor, root_of(array))

    def unpack_hook(self, packed: Any) -> Tensor:
        """The tensor that was packed, with its strides, in one storage with its aliases."""
        if isinstance(packed, Constant):
            tensor = make(packed.array)
            tensor._counter = packed.counter
            return tensor
        if not isinstance(packed, SavedView):
            return packed
        engine = packed.engine
        with engine.backend.use_device(engine.index):
            array, counter = engine.unpack(packed)
        tensor = make(array)
        if counter is not None:
            tensor._counter = counter
        return tensor


class save_on_cpu(_Offloading):
    """Within it, tensors saved for backward live in host memory, and come back when needed.

    With `pin_memory` the copies go to page-locked memory on side streams, ahead of need, and the
    host waits for none of them; without, each copy is synchronous. Each storage is copied once,
    whatever views of it are saved. Parameters and tensors that are on the host stay where they are;
    the latter are copied when they are about to be changed in place.
    `offload` has the same engine and more to choose.

    Args:
        pin_memory: use page-locked memory and asynchronous copies.
        device_type: the kind of device whose tensors are moved.

    >>> import cugrad as torch
    >>> a = torch.tensor([1., 2.], requires_grad=True)
    >>> with torch.autograd.graph.save_on_cpu(pin_memory=True) as offload:
    ...     y = (a * a).sum()
    >>> y.backward()
    >>> a.grad, offload.stats.saved_tensors
    (tensor([2., 4.]), 2)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(OffloadOptions(pinned=bool(pin_memory)), device_type)
        self.pin_memory = pin_memory


class offload(_Offloading):
    """Within it, saved tensors leave the device for page-locked host memory, and are back in time.

    Two side streams copy, one each way. A storage is copied once, at the version that was saved;
    views share it again when they are back. Parameters stay, and so does what a step before has
    shown to be on the device anyway, or to be needed before it would have left. Backward's order
    is learned, too: what comes next is brought back while the ops before it run. Gradients are
    bitwise those without, unless `compress` says otherwise. Sizes are numbers of bytes, or text as
    "8GiB".

    Args:
        min_bytes: storages smaller than this stay.
        keep_last: bytes of each step's last storages that stay from the second step on; None: those
            that had not left when backward asked for them.
        lookahead: bytes brought back ahead of need; None: two of the largest storages.
        backlog: bytes on their way out before the device waits; None: two of the largest storages.
        host_limit: bytes of page-locked memory to use; None: what the host can give.
        spill: where a tensor goes when page-locked memory is at its limit: None, ordinary host
            memory by synchronous copies; a directory, or a `DiskStore`, for which some of
            `host_limit`, at most a half, is then set aside to copy through.
        compress: "bf16", "fp16", "fp8", "int8" or a codec of your own: how floating-point tensors
            are stored. Lossy; also for tensors that are on the host.
        filter: called with each saved Tensor; those for which it is false stay.
        device_type: the only kind of device whose tensors are moved; None: any but the host.
        timing: take the times of copies and stalls in some steps, for `report()`.

    One instance may be entered again, step after step: `report()` then tells of all of them.

    >>> import cugrad as torch
    >>> from cugrad import memory
    >>> x = torch.ones(256, 256, device="simulated", requires_grad=True)
    >>> saving = memory.offload(min_bytes=1024, keep_last=0)
    >>> with saving:
    ...     y = (x * 2).exp().sum()
    >>> y.backward()
    >>> saving.stats.unique_bytes, saving.stats.moved_to_host_bytes, saving.stats.copied_ratio
    (262144, 262144, 1.0)
    """

    usual = OffloadOptions(1 << 16, None)

    def __init__(
        self,
        *,
        min_bytes: int | str = 1 << 16,
        keep_last: int | str | None = None,
        lookahead: int | str | None = None,
        backlog: int | str | None = None,
        host_limit: int | str | None = None,
        spill: Any = None,
        compress: Any = None,
        filter: Callable[[Tensor], bool] | None = None,
        device_type: str | None = None,
        timing: bool = True,
    ) -> None:
        least, last, ahead, leaving, locked = checked_sizes(
            "offload", min_bytes=min_bytes, keep_last=keep_last, lookahead=lookahead,
            backlog=backlog, host_limit=host_limit,
        )  # fmt: skip
        options = OffloadOptions(
            least, last, ahead, leaving, locked, True, _spill_of(spill), codec_named(compress),
            bool(timing),
        )  # fmt: skip
        super().__init__(options, device_type, filter)


def checked_sizes(name: str, **sizes: Any) -> list[Any]:
    """The bytes of each; ValueError for what is no size. None is one where it has a meaning."""
    return [
        None if amount is None and argument != "min_bytes"
        else bytes_of(amount, f"{name}: {argument}")
        for argument, amount in sizes.items()
    ]  # fmt: skip


def codec_named(compress: Any) -> Any:
    """The codec of an argument `compress`, or None."""
    if compress is None:
        return None
    from ..codecs import codec_of

    return codec_of(compress)


def _spill_of(spill: Any) -> Any:
    if spill is None:
        return None
    if isinstance(spill, (str, os.PathLike)):
        from ..disk.store import DiskStore

        spill = DiskStore(spill)
    if not callable(getattr(spill, "write", None)):
        raise TypeError(f"offload: spill: got {spill!r}, want a directory or a DiskStore")
    return spill
