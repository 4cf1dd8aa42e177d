"""Changes files in ways that know their structure: pickles, zip archives, databases, JSON trees."""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import pickletools
import sqlite3
import struct
import sys
import tempfile
import zipfile
from pathlib import Path
from random import Random
from typing import Any

from cugrad.serialization.archive import Writer

__all__ = ["changed_archive", "changed_bytes", "changed_chrome", "changed_database", "changed_old"]

LARGEST = 200_000  # bytes of a changed file
NUMBERS = [0, 1, 2, 3, 63, 64, 65, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, 1 << 63,
           (1 << 63) - 1, 1 << 64, (1 << 61) - 1]  # fmt: skip


def changed_bytes(draw: Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Single bytes set, runs cut out, doubled, or taken from another file; the end cut off."""
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 3, 20])):
        at = draw.randrange(len(found) + 1)
        what = draw.randrange(6)
        if what == 0:
            found[at : at + 1] = bytes([draw.randrange(256)])
        elif what == 1:
            del found[at : at + draw.choice([1, 4, 100])]
        elif what == 2:
            found[at:at] = found[at : at + draw.choice([1, 30, 500])] * draw.choice([1, 2, 50])
        elif what == 3:
            other = draw.choice(seeds)
            begin = draw.randrange(len(other) + 1)
            found[at:at] = other[begin : begin + draw.choice([4, 40, 400])]
        elif what == 4:
            number = draw.choice(NUMBERS) & ((1 << 64) - 1)
            size = draw.choice([2, 4, 8])
            found[at : at + size] = number.to_bytes(8, "little")[:size]
        elif draw.random() < 0.3:
            del found[at:]
    return bytes(found[:LARGEST])


# Pickles ------------------------------------------------------------------------------------------

OPS = [
    b"N", b"\x88", b"\x89", b"]", b"}", b")", b"\x8f", b"(", b"0", b"1", b"t", b"\x85", b"\x86",
    b"\x87", b"e", b"a", b"u", b"s", b"\x90", b"R", b"\x81", b"b", b"Q", b"\x94", b"K\x00",
    b"J\xff\xff\xff\xff", b"h\x00", b"h\x01", b"h\x02", b"q\x01", b"q\x02", b"2", b"M\xff\xff",
    b"G\x7f\xf0\x00\x00\x00\x00\x00\x00", b"G\x7f\xf8\x00\x00\x00\x00\x00\x01", b"U\x01a",
    b"X\x01\x00\x00\x00a", b"X\x04\x00\x00\x00conj", b"X\x03\x00\x00\x00neg", b"\x8c\x01b",
    b"X\x06\x00\x00\x00latin1", b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x001", b"\x95" + bytes(8),
    b"X\x09\x00\x00\x00simulated", b"X\x03\x00\x00\x00cpu", b"X\x07\x00\x00\x00storage", b"\x93",
    b"C\x02ab", b"\x96\x03" + bytes(7) + b"abc", b"X\x10\x00\x00\x00" + b"\xf0\x9f\x98\x80" * 4,
    *[b"c" + name.encode() + b"\n" for name in (
        "torch._utils\n_rebuild_tensor", "torch._utils\n_rebuild_tensor_v2", "torch\nSize",
        "torch._utils\n_rebuild_tensor_v3", "torch._utils\n_rebuild_parameter", "torch\ndevice",
        "torch._utils\n_rebuild_parameter_with_state", "torch._tensor\n_rebuild_from_type_v2",
        "torch.nn.parameter\nParameter", "torch.serialization\n_get_layout", "torch\nfloat16",
        "collections\nOrderedDict", "collections\nCounter", "_codecs\nencode", "__builtin__\nset",
        "builtins\nbytearray", "builtins\ncomplex", "builtins\nbytes", "torch\nBoolStorage",
        "torch\nDoubleStorage", "torch.storage\nUntypedStorage", "torch\nTensor", "os\nsystem",
    )],
    *[b"\x8a" + bytes([9]) + n.to_bytes(9, "little", signed=True) for n in NUMBERS],
    *[b"\x8a" + bytes([9]) + (-n).to_bytes(9, "little", signed=True) for n in NUMBERS],
    b"\x8b" + struct.pack("<i", 2500) + b"\x7f" * 2500,
]  # fmt: skip


def opcodes(data: bytes) -> list[bytes]:
    """The opcodes of a pickle with their arguments; what cannot be read is the last one."""
    starts = []
    with contextlib.suppress(Exception):
        starts = [at for _, _, at in pickletools.genops(data) if at is not None]
    ends = [*starts[1:], len(data)]
    return [data[begin:end] for begin, end in zip(starts, ends)] or [data]


def changed_pickle(draw: Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Opcodes taken out, moved, repeated, and put in, from this pickle, another, or a list."""
    found = opcodes(data)
    for _ in range(draw.choice([1, 1, 2, 4, 10])):
        at = draw.randrange(len(found))
        what = draw.randrange(10)
        if what == 9:
            _expand(draw, found)
        elif what == 0 and len(found) > 2:
            del found[at : at + draw.choice([1, 1, 5])]
        elif what <= 2:
            found[at : at + draw.randrange(2)] = draw.choices(OPS, k=draw.choice([1, 1, 3]))
        elif what == 3:
            found[at:at] = found[at : at + draw.choice([1, 3, 10])] * draw.choice(
                [1, 2, 200, 20_000]
            )
        elif what == 4:
            other = opcodes(draw.choice(seeds))
            begin = draw.randrange(len(other))
            found[at:at] = other[begin : begin + draw.choice([1, 5, 30])]
        elif what == 5:
            other_at = draw.randrange(len(found))
            found[at], found[other_at] = found[other_at], found[at]
        elif what == 6:  # what is on the stack, again and again
            again = draw.choice([b"h\xfe", b"h\xfe\x85", b"h\xfeNs", b"h\xfe)R", b"h\xfea",
                                 b"h\xfeR", b"q\xfeh\xfe\x86", b"h\xfeQ", b"h\xfeb"])  # fmt: skip
            found[at:at] = [b"q\xfe", *[again] * draw.choice([1, 60, 3000, 30_000])]
        elif what == 7:
            numbers = [i for i, op in enumerate(found) if op[:1] in b"KMJ\x8a"]
            if numbers:
                number = draw.choice(NUMBERS) * draw.choice([1, 1, -1])
                said = number.to_bytes(9, "little", signed=True)
                found[draw.choice(numbers)] = b"\x8a\x09" + said
        else:
            found[at] = changed_bytes(draw, found[at] or b"N", seeds)
        if sum(map(len, found)) > LARGEST or not found:
            break
    whole = bytearray()
    for part in found:  # not all at once: the process has little memory, as what it tests
        whole += part[: LARGEST - len(whole)]
    return bytes(whole)


def _expand(draw: Random, found: list[bytes]) -> None:
    """A tensor with a bit that PyTorch resolves, in which a number, its size perhaps, is large."""
    ends = [i for i in range(1, len(found)) if found[i - 1][:1] == b"t" and b"R" in found[i][:1]]
    ends = ends or [i for i in range(1, len(found)) if found[i][:1] == b"R"]
    if not ends:
        return
    end = draw.choice(ends)
    numbers = [i for i in range(max(end - 20, 0), end) if found[i][:1] in (b"K", b"M")]
    found.insert(end - 1, b"}X" + draw.choice([b"\x03\0\0\0neg", b"\x04\0\0\0conj"]) + b"\x88s")
    for i in draw.sample(numbers, min(len(numbers), draw.choice([0, 1, 2]))):
        found[i] = b"\x8a\x09" + draw.choice([0, 1 << 28, 1 << 40]).to_bytes(9, "little")


# Archives -----------------------------------------------------------------------------------------


def records(data: bytes) -> dict[str, bytes]:
    """What an archive holds, by name without its directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def changed_archive(draw: Random, data: bytes, seeds: list[bytes]) -> bytes:
    """A changed pickle in a whole archive; or records moved, renamed, doubled; or its headers."""
    what = draw.random()
    if what < 0.25:
        return _changed_headers(draw, data)
    if what < 0.35:
        return changed_bytes(draw, data, seeds)
    found = records(data)
    if what < 0.9:
        others = [records(each)["data.pkl"] for each in draw.choices(seeds, k=1)]
        found["data.pkl"] = changed_pickle(draw, found["data.pkl"], others)
    for _ in range(draw.choice([0, 0, 1, 3]) if what < 0.9 else 3):
        name, other = draw.choice(list(found)), draw.choice(list(found))
        way = draw.randrange(5)
        if way == 0:
            found[name], found[other] = found[other], found[name]
        elif way == 1:
            found[f"data/{draw.randrange(9)}"] = found[name]
        elif way == 2:
            found[name] = changed_bytes(draw, found[name] or b"0", [found[other] or b"1"])
        elif way == 3:
            found["byteorder"] = draw.choice([b"big", b"little", b"", b"middle"])
        elif len(found) > 1:
            del found[name]
    file = io.BytesIO()
    with Writer(file, "archive") as archive:
        for name, content in found.items():
            archive.write(name, content)
    return file.getvalue()[: 2 * LARGEST]


def _changed_headers(draw: Random, data: bytes) -> bytes:
    """An archive with numbers of its directory, of its end or of a header changed."""
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 3])):
        mark, size = draw.choice([(b"PK\x01\x02", 46), (b"PK\x05\x06", 22), (b"PK\x03\x04", 30)])
        places = [at for at in range(len(found)) if found[at : at + 4] == mark]
        if not places:
            continue
        at = draw.choice(places) + draw.randrange(4, size - 3, 2)
        number = draw.choice(
            [draw.choice(NUMBERS), draw.randrange(len(found)), draw.choice(places)]
        )
        width = draw.choice([2, 4])
        found[at : at + width] = (number & 0xFFFFFFFF).to_bytes(4, "little")[:width]
    return bytes(found)


def changed_old(draw: Random, data: bytes, seeds: list[bytes]) -> bytes:
    """A file of the old format: opcodes of all its pickles changed, the rest as it is."""
    if draw.random() < 0.3:
        return changed_bytes(draw, data, seeds)
    parts, at = [], 0
    for _ in range(5):  # number, version, system, object, keys
        end = at + sum(map(len, opcodes(data[at:])[:-1])) + 1
        parts.append(data[at:end])
        at = end
    which = draw.choice([3, 3, 3, 3, 2, 4])
    parts[which] = changed_pickle(draw, parts[which], [parts[3], parts[4]])
    rest = data[at:]
    if draw.random() < 0.2:
        rest = changed_bytes(draw, rest, [rest])
    return (b"".join(parts) + rest)[: 2 * LARGEST]


# Traces -------------------------------------------------------------------------------------------

CELLS = [None, -1, 0, 1, 2, 59, 1 << 62, -(1 << 62), (1 << 63) - 1, 1.5, "x", b"\xff\x00", "",
         1e300, "9" * 5000, "cuda" + "Synchronize" * 900 + "-", "mul, seq=" + "9" * 5000,
         b"\xff" * 8, "mul, seq=3, sizes=[[" + "9" * 5000 + "]]", "_Z1fIS_S0_S1_E",
         "_Z" + "1fI" * 500, 1e19, "\udcff".encode("utf-8", "surrogatepass")]  # fmt: skip
VIEW = """CREATE VIEW "{}" AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT
x AS start, x + 1 AS end, 59 AS eventType, 'v' AS text, 1 AS globalTid, x AS correlationId FROM n"""


def changed_database(draw: Random, data: bytes, seeds: list[bytes]) -> bytes:
    """Cells set, rows doubled, columns and tables dropped, replaced by views; or bytes changed."""
    if draw.random() < 0.35:
        return changed_bytes(draw, data, seeds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "database")
        path.write_bytes(data)
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.text_factory = bytes
            looks = iter(range(20))
            database.set_progress_handler(lambda: next(looks, None) is None, 100_000)
            if sys.version_info >= (3, 11):
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
            tables = [row[0].decode() for row in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'")]  # fmt: skip
            for _ in range(draw.choice([1, 1, 2, 5])):
                with contextlib.suppress(sqlite3.Error):
                    _change_table(draw, database, draw.choice(tables))
            with contextlib.suppress(sqlite3.Error):
                database.commit()
        return path.read_bytes()[: 2 * LARGEST]


def _change_table(draw: Random, database: sqlite3.Connection, table: str) -> None:
    columns = [row[1].decode() for row in database.execute(f'PRAGMA table_info("{table}")')]
    rows = [row[0] for row in database.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')]
    column, what = draw.choice(columns), draw.random()
    if what < 0.6:
        cell, many = draw.choice(CELLS), draw.choice([1, 3, len(rows)])
        for row in draw.sample(rows, min(many, len(rows))):
            database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (cell, row))
    elif what < 0.66:
        database.execute(f'DROP TABLE "{table}"')
    elif what < 0.72:
        database.execute(f'DELETE FROM "{table}"')
    elif what < 0.78:
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif what < 0.82:
        database.execute(f'DROP TABLE "{table}"')
        database.execute(VIEW.format(table))
    elif what < 0.86:
        big = "TEXT AS (hex(zeroblob(300000000)))"
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        database.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {big}')
    else:  # the same rows again, without what makes them different
        database.execute(f'CREATE TABLE copied AS SELECT * FROM "{table}"')
        database.execute(f'DROP TABLE "{table}"')
        database.execute(f'ALTER TABLE copied RENAME TO "{table}"')
        for _ in range(draw.choice([1, 4, 7])):
            database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')


VALUES: list[Any] = [None, -1, 0, 1.5, float("inf"), float("nan"), 1 << 70, 10**400, "x", "", [],
                     {}, True, "7", "1e999", [[[]]], "cuda" + "Synchronize" * 900 + "-", -1e300,
                     "mul, seq=" + "9" * 5000, "X", "B", "E", "kernel", "stall"]  # fmt: skip


def changed_chrome(draw: Random, data: bytes, seeds: list[bytes]) -> bytes:
    """A JSON tree with values set, taken out and repeated; or bytes changed; also compressed."""
    packed = data[:2] == b"\x1f\x8b"
    if draw.random() < 0.3:
        return changed_bytes(draw, data, seeds)
    tree = json.loads(gzip.decompress(data) if packed else data)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        _change_tree(draw, tree)
    text = json.dumps(tree).encode()[: 2 * LARGEST]
    if draw.random() < 0.02:
        text = b'{"traceEvents": [' + draw.choice([b"[", b'{"a":', b" "]) * (1 << 22)
        packed = True
    return gzip.compress(text, mtime=0) if packed else text


def _change_tree(draw: Random, tree: Any) -> None:
    at = tree
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key, what = draw.choice(keys), draw.random()
        below = at[key]
        if what < 0.25 or not isinstance(below, (dict, list)):
            at[key] = copy.deepcopy(draw.choice(VALUES))
        elif what < 0.3:
            del at[key]
        elif what < 0.35 and isinstance(at, list):
            at[key:key] = [below] * draw.choice([1, 50, 1000])
        elif what < 0.4:
            for other in at if isinstance(at, list) else ():
                if isinstance(other, dict) and isinstance(below, dict) and below:
                    name = draw.choice(list(below))
                    other[name] = below[name]
        elif what < 0.42:
            deep: Any = []
            for _ in range(draw.choice([5, 300, 800])):
                deep = [deep]
            at[key] = deep if draw.random() < 0.5 else json.dumps(below)
        else:
            at = below
            continue
        return
