"""What collectives cost between GPUs of several machines, by closed formulas."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

__all__ = ["HDR_NVLINK3", "NDR_NVLINK4", "Links", "ring", "tree"]


def ring(nbytes: float, ranks: int, bandwidth: float, latency: float) -> float:
    """Seconds of an all-reduce around a ring: 2 (n-1) steps, each of an n-th of the bytes.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
    (2009): no other sends less.

    >>> ring(8e9, 8, 1e9, 0.0)
    14.0
    """
    return 2 * (ranks - 1) * (nbytes / ranks / bandwidth + latency)


def tree(nbytes: float, ranks: int, bandwidth: float, latency: float) -> float:
    """Seconds of an all-reduce up and down two binary trees, each of which has half of the bytes.

    Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan" (2009): 2 log2 n latencies, and all bytes twice over the wire.

    >>> tree(8e9, 8, 1e9, 1.0)
    22.0
    """
    if ranks == 1:
        return 0.0
    return 2 * ceil(log2(ranks)) * latency + 2 * nbytes / bandwidth


@dataclass(frozen=True)
class Links:
    """The wires of a cluster: rates in bytes/s of one GPU, one way, latencies in seconds a hop.

    `inside` is between the GPUs of a machine, of which there are `per_machine`, `between` from a
    GPU to its peer in another machine: each GPU has a network card of its own.

    A collective over machines goes level by level, as in Cho et al., "BlueConnect" (2019): parts
    are reduced within each machine, each GPU's part between the machines, and gathered within.
    On each level an all-reduce is the ring's or the tree's, whichever is faster: NCCL chooses so
    by its own estimates.

    >>> NDR_NVLINK4.all_reduce(100e6, 8) < NDR_NVLINK4.all_reduce(100e6, 64)
    True
    """

    inside: float
    between: float
    inside_latency: float = 1.9e-6
    between_latency: float = 4.0e-6
    per_machine: int = 8

    def machines(self, ranks: int) -> tuple[int, int]:
        """How many GPUs of each machine, and how many machines; ValueError if some stay idle."""
        if ranks <= self.per_machine:
            return ranks, 1
        if ranks % self.per_machine:
            raise ValueError(
                f"Links: got {ranks} ranks, want up to {self.per_machine} in one machine, or a "
                f"multiple of {self.per_machine}"
            )
        return self.per_machine, ranks // self.per_machine

    def all_reduce(self, nbytes: float, ranks: int) -> float:
        """Seconds in which `nbytes` of every rank become their sum on every rank."""
        near, far = self.machines(ranks)
        if far == 1:
            return self._fastest(nbytes, near, self.inside, self.inside_latency)
        return 2 * self._pass(nbytes, near, self.inside, self.inside_latency) + self._fastest(
            nbytes / near, far, self.between, self.between_latency
        )

    def all_gather(self, nbytes: float, ranks: int) -> float:
        """Seconds in which every rank gets `nbytes` in all, or a reduce-scatter has them summed."""
        near, far = self.machines(ranks)
        return self._pass(nbytes, near, self.inside, self.inside_latency) + self._pass(
            nbytes / near, far, self.between, self.between_latency
        )

    def send(self, nbytes: float, ranks: int) -> float:
        """Seconds in which a rank sends `nbytes`, over the slowest link that there is."""
        if self.machines(ranks)[1] == 1:
            return self.inside_latency + nbytes / self.inside
        return self.between_latency + nbytes / self.between

    def broadcast(self, nbytes: float, ranks: int) -> float:
        """Seconds in which every rank gets what one has, in a pipeline down trees."""
        near, far = self.machines(ranks)
        hops = ceil(log2(near)) * self.inside_latency + ceil(log2(far)) * self.between_latency
        return hops + (nbytes / (self.inside if far == 1 else self.between) if ranks > 1 else 0.0)

    @staticmethod
    def _fastest(nbytes: float, ranks: int, bandwidth: float, latency: float) -> float:
        return min(f(nbytes, ranks, bandwidth, latency) for f in (ring, tree))

    @staticmethod
    def _pass(nbytes: float, ranks: int, bandwidth: float, latency: float) -> float:
        """Once around a ring, half of an all-reduce."""
        return ring(nbytes, ranks, bandwidth, latency) / 2


# Rates: data sheets. NVLink 3 of an A100 has 600 GB/s in both directions together, NVLink 4 of an
# H100 900 GB/s. A DGX A100 has a card of HDR InfiniBand (200 Gbit/s) for each GPU, a DGX H100 one
# of NDR (400 Gbit/s). Of both, 15/16 are data with NCCL's protocol LL128 (120 of 128 bytes), whose
# latencies a hop, 1.9 us over NVLink and 4.0 us over a network, are those of `hwLat` in NCCL's
# src/graph/tuning.cc.
LL128 = 120 / 128
HDR_NVLINK3 = Links(300e9 * LL128, 25e9 * LL128)
NDR_NVLINK4 = Links(450e9 * LL128, 50e9 * LL128)
