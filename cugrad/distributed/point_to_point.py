"""Sends and receives between two ranks of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .checks import check_tensor, get_global_rank, member_group, rank_in
from .engines.wires import Wire
from .groups import ProcessGroup, default_group
from .work import Work

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Sends a tensor to a rank; it may be changed when the Work that is returned has ended."""
    check_tensor(tensor, "tensor")
    chosen = member_group(group, "isend")
    if chosen is None:
        return None
    peer = rank_in(chosen, dst, group_dst)
    engine = chosen.engine_for("isend", tensor._array)
    wire = Wire([tensor], engine.on_host, reads=True)
    call = chosen.begin("send", counted=False)
    pending = engine.send(wire.array, peer, tag)
    pending.attend()
    return Work(call, pending, [], lambda: None)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Receives a tensor from a rank, or from any; it is there when the returned Work has ended."""
    check_tensor(tensor, "tensor")
    chosen = member_group(group, "irecv")
    if chosen is None:
        return None
    from_any = src is None and group_src is None
    peer = None if from_any else rank_in(chosen, src, group_src)
    engine = chosen.engine_for("irecv", tensor._array)
    wire = Wire([tensor], engine.on_host, writes=True)
    call = chosen.begin("recv", counted=False)
    pending = engine.receive(wire.array, peer, tag)
    pending.attend()
    return Work(call, pending, [tensor], wire.deliver)


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Sends a tensor to a rank, and waits until it may be changed."""
    check_tensor(tensor, "tensor")
    chosen = member_group(group, "send")
    if chosen is None:
        return
    peer = rank_in(chosen, dst, group_dst)
    _check_other(chosen, peer, "destination")
    work = isend(tensor, group=group, tag=tag, group_dst=peer)
    assert work is not None
    work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receives a tensor from a rank, or from any; returns which rank it came from."""
    work = irecv(tensor, src=src, group=group, tag=tag, group_src=group_src)
    if work is None:
        return -1
    work.wait()
    if src is not None:
        return src
    chosen = member_group(group, "recv")
    assert chosen is not None
    peer = work.source_rank() if group_src is None else group_src
    return get_global_rank(chosen, peer)


def _check_other(group: ProcessGroup, rank: int, kind: str) -> None:
    if group.rank() == rank:
        raise ValueError(
            f"Invalid {kind} rank: {kind} rank should not be the same as the rank of the current "
            "process."
        )


class P2POp:
    """A send or a receive of a batch: `P2POp(dist.isend, tensor, peer)`."""

    def __init__(
        self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None, group: Any = None,
        tag: int = 0, group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        check_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group: ProcessGroup = group or default_group()
        self.group_peer = rank_in(self.group, peer, group_peer)
        self.peer = get_global_rank(self.group, self.group_peer)

    def __repr__(self) -> str:
        ranks = self.group.rank(), self.group_peer
        src, dst = ranks if self.op is isend else ranks[::-1]
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={src}, "
            f"group_dst={dst},  {self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begins sends and receives together, in any order; returns the Work of each."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to to be of type "
            "``torch.distributed.P2POp``."
        )
    if not p2p_op_list:
        raise ValueError("batch_isend_irecv: got an empty list, want at least one P2POp")
    group = p2p_op_list[0].group
    if not all(p.group is group for p in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    with group.engine_for("batch_isend_irecv", p2p_op_list[0].tensor._array).batch():
        for p in p2p_op_list:
            peer = {"group_dst" if p.op is isend else "group_src": p.group_peer}
            work = p.op(p.tensor, group=p.group, tag=p.tag, **peer)
            if work is not None:
                works.append(work)
    return works
