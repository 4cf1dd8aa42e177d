"""Whole files of every format that is read, for the machine that changes them."""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import cugrad as torch
from cugrad import nn
from cugrad.profiler import ProfilerActivity, profile
from cugrad.serialization.pickling import pickled
from cugrad.serialization.storages import StorageCollector
from tests.profiler.profiler_files import training_step, write_chrome, write_nsys, write_nvprof

__all__ = ["archives", "databases", "old_files", "traces"]

OLD = 0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}


def objects() -> list[Any]:
    """What people save."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    adam = torch.optim.Adam(net.parameters())
    net(torch.ones(5, 3)).sum().backward()
    adam.step()
    x = torch.arange(12, dtype=torch.float32)
    kinds = [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.bool, torch.int8]
    weight = nn.Parameter(torch.ones(2))
    weight.note = "a note"  # type: ignore[attr-defined]
    return [
        x, {"whole": x, "part": x[3:7], "turned": x.view(3, 4).T}, net.state_dict(),
        adam.state_dict(), [torch.ones(3).to(kind) for kind in kinds], weight,
        OrderedDict(a=1, b=[2, (3, {4: 5})]), [b"bytes", 1 + 2j, {1, 2}, 1 << 70, None, -1.5, "é"],
        (torch.Size([1, 2]), torch.device("cpu"), torch.float16, Counter("aab"), bytearray(b"x")),
        {(1, 2): "t", 3.5: "f", True: "b", "long" * 30: torch.zeros(0, 3)},
    ]  # fmt: skip


def archives(folder: Path) -> list[bytes]:
    """Files of `save`."""
    found = []
    for each in objects():
        for protocol in (2, 4):
            file = io.BytesIO()
            torch.save(each, file, pickle_protocol=protocol)
            found.append(file.getvalue())
    return found


def old_files(folder: Path) -> list[bytes]:
    """Files as PyTorch wrote them before 1.6: the pickles of today, with storages behind them."""
    found = []
    for each in objects():
        storages = StorageCollector()
        data = pickled(each, storages, 2)
        data = re.sub(rb"t(q.|r....|)Q", rb"Nt\1Q", data, flags=re.DOTALL)
        keys = [str(number) for number in range(len(storages.found))]
        parts = [*[pickle.dumps(part, 2) for part in OLD], data, pickle.dumps(keys, 2)]
        for number, flat in enumerate(storages.found):
            parts += [struct.pack("<q", flat.size), storages.bytes_of(number).tobytes()]
        found.append(b"".join(parts))
    return found


def databases(folder: Path) -> list[bytes]:
    """Files of nsys, new and old, and of nvprof."""
    found = []
    for step in (training_step(), training_step("torch"), training_step("cugrad", True)):
        for write in (write_nsys, lambda p, s: write_nsys(p, s, new=False), write_nvprof):
            found.append(write(folder / "seed", step).read_bytes())
    return found


def traces(folder: Path) -> list[bytes]:
    """Chrome traces as PyTorch writes them, and cugrad's own, with an offload."""
    path = folder / "seed"
    found = [write_chrome(path, training_step()).read_bytes()]
    x = torch.ones(64, 64, requires_grad=True, device="simulated")
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities, record_shapes=True, profile_memory=True) as prof:
        with torch.memory.offload(min_bytes=1):
            y = (x @ x).exp().sum()
        y.backward()
    for name in ("seed.json", "seed.json.gz"):
        prof.export_chrome_trace(folder / name)
        found.append((folder / name).read_bytes())
    return found
