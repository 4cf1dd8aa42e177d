"""load: no file runs code, or takes memory that it does not bring; what is wrong is an error."""

from __future__ import annotations

import builtins
import collections
import io
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.serialization.archive import Writer
from cugrad.serialization.checked import shown

hypothesis = pytest.importorskip("hypothesis")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

REFUSED = (pickle.UnpicklingError, RuntimeError, EOFError)


def archive(pickled: bytes, **records: Any) -> io.BytesIO:
    """A file of save's form with this pickle."""
    file = io.BytesIO()
    with Writer(file, "archive") as out:
        out.write("data.pkl", pickled)
        for name, data in {"byteorder": b"little", "version": b"3\n", **records}.items():
            out.write(name, data)
    return file


def tensor_pickle(**changed: Any) -> bytes:
    """The pickle of a tensor of 4 floats, with some of what it says changed."""
    said: dict[str, Any] = {
        "kind": "torch FloatStorage", "key": "0", "place": "cpu", "count": 4, "offset": 0,
        "size": (4,), "stride": (1,), "requires_grad": False, **changed,
    }  # fmt: skip

    def plain(value: Any) -> bytes:
        return pickle.dumps(value, 2)[2:-1].replace(b"q\x00", b"").replace(b"q\x01", b"")

    kind = b"c" + said["kind"].replace(" ", "\n").encode() + b"\n"
    return b"".join([
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((", plain("storage"), kind,
        plain(said["key"]), plain(said["place"]), plain(said["count"]), b"tQ",
        plain(said["offset"]), plain(said["size"]), plain(said["stride"]),
        plain(said["requires_grad"]), b"ccollections\nOrderedDict\n)RtR.",
    ])  # fmt: skip


FOUR = np.arange(4, dtype=np.float32)


def test_the_honest_file_of_these_tests_loads() -> None:
    found = cugrad.load(archive(tensor_pickle(), **{"data/0": FOUR}))
    assert found.tolist() == [0, 1, 2, 3]


# Code ---------------------------------------------------------------------------------------------


class Runs:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


ATTACKS = {
    "os.system": Runs(os.system, "touch /tmp/cugrad-was-here"),
    "eval": Runs(eval, "__import__('os').system('false')"),
    "exec": Runs(exec, "raise SystemExit"),
    "open": Runs(open, "/tmp/cugrad-was-here", "w"),
    "subprocess": Runs(subprocess.Popen, "false"),
    "getattr": Runs(getattr, "", "join"),
    "import": Runs(builtins.__import__, "antigravity"),
    "exit": Runs(sys.exit, 3),
    "type": Runs(type, "X", (), {}),
    "map": Runs(map, print, ["x"]),
    "bytearray of a size": Runs(bytearray, 1 << 40),
    "range": Runs(range, 1 << 60),
    "numpy": np.ones(3),
    "a lazy import": Runs(collections.namedtuple, "X", "a"),
    "load itself": Runs(cugrad.load, "x"),
    "a module": Runs(cugrad.nn.Linear, 1 << 20, 1 << 20),
    "a zeros": Runs(cugrad.zeros, 1 << 40),
}


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("nested", [False, True])
def test_no_code_runs(name: str, protocol: int, nested: bool) -> None:
    attack = ATTACKS[name]
    file = archive(pickle.dumps([{"a": attack}] if nested else attack, protocol))
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        cugrad.load(file)
    assert not os.path.exists("/tmp/cugrad-was-here")
    assert "antigravity" not in sys.modules


def test_modules_that_cannot_be_allowed() -> None:
    file = archive(pickle.dumps(Runs(os.system, "false"), 2))
    allow = cugrad.serialization.safe_globals([os.system, (os.system, "posix.system")])
    with allow, pytest.raises(pickle.UnpicklingError, match="whose module posix is blocked"):
        cugrad.load(file)


def test_what_is_allowed_is_allowed_in_the_block_alone() -> None:
    from fractions import Fraction

    file = io.BytesIO()
    cugrad.save({"f": Fraction(1, 3)}, file)
    for allow in ([Fraction], [(Fraction, "fractions.Fraction")]):
        with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[fractions.Fraction"):
            cugrad.load(file)
        with cugrad.serialization.safe_globals(allow):
            assert cugrad.load(file) == {"f": Fraction(1, 3)}
            assert cugrad.serialization.get_safe_globals() == allow
    cugrad.serialization.add_safe_globals([Fraction])
    assert cugrad.serialization.get_unsafe_globals_in_checkpoint(file) == []
    cugrad.serialization.clear_safe_globals()
    assert cugrad.serialization.get_unsafe_globals_in_checkpoint(file) == ["fractions.Fraction"]


CODE = {  # programs for the stack machine, after the two bytes of the protocol
    "a method of a dict": b"}X\x03\x00\x00\x00getR.",
    "call of a tensor's class": b"ctorch\nTensor\nK\x05\x85R.",
    "call of a dtype": b"ctorch\nfloat32\n)R.",
    "new object of a list": b"]\x85)\x81.",
    "state for a tensor's class": b"ctorch\nTensor\n}b.",
    "state for a dict": b"}}X\x01\x00\x00\x00aK\x01sb.",
    "state for OrderedDict itself": b"ccollections\nOrderedDict\n}X\x05\x00\x00\x00itemsK\x01sb.",
    "state that is no dict": b"ccollections\nOrderedDict\n)RK\x01b.",
    "items for a list": b"]K\x01K\x02s.",
    "append to a tuple": b")K\x01a.",
    "a key that is a list": b"}]K\x01s.",
    "an ordered key that is a list": b"ccollections\nOrderedDict\n(](]K\x01eetR.",
    "an odd number of items": b"}(K\x01K\x02K\x03u.",
    "a name with no storage": b"K\x01Q.",
    "a tuple with no storage": b"(K\x01K\x02tQ.",
    "a storage of five lies": b"(X\x07\x00\x00\x00storageK\x01K\x01K\x01K\x01tQ.",
    "memory that was never put": b"h\x07.",
    "pop of nothing": b"000.",
    "tuple of nothing": b"\x87.",
    "a mark for a value": b"(.",
    "no mark": b"t.",
    "two results": b"K\x01K\x02.",
    "no stop": b"K\x01",
    "no text": b"X\xff\xff\xff\xff.",
    "text of 2**63 bytes": b"\x8d" + b"\xff" * 8 + b".",
    "a number of -1 bytes": b"\x8b\xff\xff\xff\xff.",
    "text that is no utf-8": b"X\x01\x00\x00\x00\xff.",
    "a global without its end": b"cos",
    "extension registry": b"\x82\x01.",
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(ctorch\nSize\no.",
    "old persistent name": b"Pfoo\n.",
    "a Size of text": b"ctorch\nSize\n(X\x01\x00\x00\x00atR.",
    "bytes by another codec": b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.",
    "a complex of text": b"cbuiltins\ncomplex\nX\x02\x00\x00\x001j\x85R.",
    "a parameter of a number": b"ctorch.nn.parameter\nParameter\nK\x05\x85R.",
    "a tensor of no storage": b"ctorch._utils\n_rebuild_tensor\n(K\x01K\x00)K\x00tR.",
    "a tensor of a type by a type": (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ccollections\nOrderedDict\nctorch\nTensor\n)}tR."
    ),
    "a call without a tuple": b"ctorch\nSize\n]R.",
    "a device of a number": b"ctorch\ndevice\nK\x01\x85R.",
    "os by dots": b"cos.path\njoin\n.",
    "a name within a name": b"ctorch\nTensor.__init__.__globals__\n.",
}  # fmt: skip


@pytest.mark.parametrize("name", list(CODE))
def test_programs_that_are_no_pickles(name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        cugrad.load(archive(b"\x80\x02" + CODE[name]))


# Time and memory ----------------------------------------------------------------------------------


def test_keys_that_take_for_ever() -> None:
    """A tuple of two of a tuple of two ...: its hash has 2**60 steps."""
    doubled = b"\x80\x02}N" + b"".join(b"2\x86" for _ in range(60)) + b"K\x01s."
    with pytest.raises(pickle.UnpicklingError, match="a key of more than a thousand parts"):
        cugrad.load(archive(doubled.replace(b"2\x86", b"q\x01h\x01\x86")))
    deep = b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"K\x01s."  # deeper than C's stack
    with pytest.raises(pickle.UnpicklingError, match="a key of more than a thousand parts"):
        cugrad.load(archive(deep))


def test_copies_of_one_text() -> None:
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x01X\x06\x00\x00\x00latin1q\x02"
    again = b"c_codecs\nencode\nq\x0300" + b"h\x03h\x01h\x02\x86R" * 10_000
    program = b"\x80\x02(" + text + again.replace(b"q\x0300", b"q\x03") + b"t."
    tracemalloc.start()
    try:
        with pytest.raises(pickle.UnpicklingError, match="copies more than it holds"):
            cugrad.load(archive(program))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


def numbered(value: Any) -> bytes:
    return pickle.dumps(value, 2)[2:-1].replace(b"q\x00", b"").replace(b"q\x01", b"")


DICT_OF_1000 = b"}(" + b"".join(text(b"%d" % n) + b"N" for n in range(1000)) + b"u"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\nq\x020"
STORAGE = (
    b"((" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") + text(b"cpu") + b"K\x04tQ"
)
REST = b"\x89ccollections\nOrderedDict\n)R"
HUGE = b"\x8b" + struct.pack("<i", 3000) + b"\x7f" * 3000
BITS = {name: b"}" + text(name.encode()) + b"\x88s" for name in ("neg", "conj")}

BOMBS = {  # each names something large again and again
    **{
        f"a {bit} of an expanded element": b"ctorch._utils\n_rebuild_tensor_v2\n" + STORAGE
        + b"K\x00" + numbered((1 << 40,)) + numbered((0,)) + REST + BITS[bit] + b"tR."
        for bit in BITS
    },
    "negated views without end": REBUILD + STORAGE[1:] + b"q\x030(" + BITS["neg"] + b"q\x050"
    + (b"h\x02(h\x03K\x00K\x04\x85K\x01\x85" + REST + b"h\x05tR") * 3000 + b"t.",
    "sizes whose product is long": REBUILD + STORAGE + b"q\x030" + HUGE + b"q\x040h\x02(h\x03K\x00("
    + b"h\x04" * 50_000 + b"t(" + b"h\x04" * 50_000 + b"t" + REST + b"tR.",
    "an offset of many digits": REBUILD + b"h\x02" + STORAGE + HUGE + b"K\x04\x85K\x01\x85" + REST
    + b"tR.",
    "a storage of many digits": tensor_pickle().replace(b"K\x04tQ", HUGE + b"tQ"),
    "attributes again": b"(" + DICT_OF_1000 + b"q\x020"
    + b"ccollections\nOrderedDict\n)Rh\x02b" * 3000 + b"t.",
    "attributes in a tuple": b"(" + DICT_OF_1000 + b"q\x020"
    + b"ctorch._utils\n_rebuild_parameter_with_state\nq\x030"
    + b"h\x03(N\x89Nh\x02\x85tR" * 3000 + b"t.",
    "keys of 990 parts": b"(" + b"N" * 990 + b"tq\x010}" + b"h\x01Ns" * 20_000 + b".",
    "long keys that are equal": b"}" + text(b"a" * 30_000) + b"Ns" + text(b"a" * 30_000)
    + b"q\x010" + b"h\x01Ns" * 20_000 + b".",
    "a long number for a key": b"}" + HUGE + b"q\x010" + b"h\x01Ns" * 20_000 + b".",
    "keys that share a hash": b"}" + b"".join(
        numbered(n * ((1 << 61) - 1)) + b"Ns" for n in range(2, 20_000)) + b".",
    "a function that is a doubled tuple": b"N" + b"q\x01h\x01\x86" * 60 + b")R.",
    "a codec that is a doubled tuple": b"c_codecs\nencode\n" + text(b"a") + b"N"
    + b"q\x01h\x01\x86" * 60 + b"\x86R.",
    "a codec of many digits": b"c_codecs\nencode\n" + text(b"a") + HUGE + b"\x86R.",
}  # fmt: skip


@pytest.mark.parametrize("name", list(BOMBS))
def test_small_files_take_little(name: str) -> None:
    """Memory grows with the file; time is bounded by what may be copied, hashed and compared."""
    file = archive(b"\x80\x02" + BOMBS[name].removeprefix(b"\x80\x02"), **{"data/0": FOUR})
    tracemalloc.start()
    try:
        try:
            cugrad.load(file)
        except pickle.UnpicklingError:
            pass
        assert tracemalloc.get_traced_memory()[1] < 200 * len(file.getvalue()) + 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["BoolStorage", "ByteStorage"])
def test_an_old_file_names_its_storage_again(kind: str) -> None:
    """One of half the file, by three hundred tensors: it is there once."""
    count = 1 << 20
    program = REBUILD + STORAGE.replace(b"K\x04tQ", numbered(count) + b"NtQ")[1:].replace(
        b"FloatStorage", kind.encode()
    )  # fmt: skip
    program = program[:-1] + b"q\x030("  # the name, of which each use makes a storage
    program += (b"h\x02(h\x03QK\x00K\x04\x85K\x01\x85" + REST + b"tR") * 300 + b"t."
    data = old_file(b"\x80\x02" + program, count=count)[:-16] + bytes(count)
    tracemalloc.start()
    try:
        assert len(cugrad.load(io.BytesIO(data))) == 300
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data)
    finally:
        tracemalloc.stop()


def test_a_mapped_file_takes_one_descriptor(tmp_path: Any) -> None:
    cugrad.save([cugrad.full((4,), n) for n in range(200)], tmp_path / "many.pt")
    before = len(os.listdir("/proc/self/fd"))
    found = cugrad.load(tmp_path / "many.pt", mmap=True)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert [each[0].item() for each in found] == list(range(200))
    found[3][:] = -1.0  # stays in memory, and in this tensor
    assert found[4][0].item() == 4 and cugrad.load(tmp_path / "many.pt")[3][0].item() == 3
    file = io.BytesIO()
    cugrad.save(found[5], file)
    assert len(file.getvalue()) < 2000  # its own elements, not what else is mapped
    del found
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("bits", [(True, False), (False, True), (True, True)])
def test_views_with_bits_share_what_the_file_shares(bits: tuple[bool, bool]) -> None:
    from cugrad.serialization.names import rebuild_tensor_v2
    from cugrad.serialization.storages import LoadedStorage

    flat = np.arange(6) + 1j
    storage = LoadedStorage(flat.view(np.uint8).reshape(-1), cugrad.complex128)
    said = {"conj": bits[0], "neg": bits[1]}
    one = rebuild_tensor_v2(storage, 1, (2, 2), (2, 1), False, None, said)
    two = rebuild_tensor_v2(storage, 0, (6,), (1,), False, None, said)
    want = flat.conj() if bits[0] else flat
    want = -want if bits[1] else want
    assert one.tolist() == want[1:5].reshape(2, 2).tolist()
    assert two.tolist() == want.tolist()
    two.zero_()
    assert one.tolist() == [[0, 0], [0, 0]]


LIES = {
    "a size beyond the storage": {"size": (5,)},
    "an offset beyond the storage": {"offset": 1},
    "a stride beyond the storage": {"size": (2, 2), "stride": (3, 1)},
    "a negative offset": {"offset": -1},
    "a negative size": {"size": (-1,)},
    "a negative stride": {"stride": (-1,)},
    "sizes whose product is huge": {"size": (1 << 40, 1 << 40), "stride": (0, 0)},
    "fewer strides than sizes": {"size": (2, 2)},
    "a size of another type": {"size": (4.0,)},
    "a bool for a size": {"size": (True,)},
    "an offset that overflows": {"offset": 1 << 62},
    "a stride that overflows": {"size": (2,), "stride": (1 << 62,)},
    "65 dims": {"size": (1,) * 65, "stride": (1,) * 65},
    "a storage of more elements": {"count": 5},
    "a storage of fewer elements": {"count": 3},
    "a storage of 2**60 elements": {"count": 1 << 60},
    "a storage of a negative size": {"count": -4},
    "another type of storage": {"kind": "torch DoubleStorage"},
    "a storage that is not there": {"key": "1"},
    "a storage outside": {"key": "../../etc/passwd"},
    "a key that is no text": {"key": 0},
    "no device": {"place": "abacus"},
    "a storage's type that is none": {"kind": "torch float32"},
}


@pytest.mark.parametrize("name", list(LIES))
def test_tensors_that_lie(name: str) -> None:
    file = archive(tensor_pickle(**LIES[name]), **{"data/0": FOUR})
    with pytest.raises(REFUSED, match="load|archive|restore"):
        cugrad.load(file)


def test_bytes_that_are_no_bool() -> None:
    pickled = tensor_pickle(kind="torch BoolStorage")
    file = archive(pickled, **{"data/0": bytes([0, 1, 2, 255])})
    found = cugrad.load(file)
    assert found.tolist() == [False, True, True, True] and found.sum().item() == 3


# The archive --------------------------------------------------------------------------------------


def good() -> bytes:
    return archive(tensor_pickle(), **{"data/0": FOUR}).getvalue()


def test_a_bomb() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("archive/data.pkl", tensor_pickle(count=1 << 24, size=(1 << 24,)))
        out.writestr("archive/version", b"3\n")
        out.writestr("archive/data/0", bytes(1 << 26))
    assert len(file.getvalue()) < 1e5
    with pytest.raises(RuntimeError, match="is compressed or encrypted"):
        cugrad.load(file)


def patched(data: bytes, record: str, at: int, value: int, size: int) -> bytes:
    """The archive with a number of the directory's entry for a record changed."""
    entry = data.index(b"PK\x01\x02", data.rindex(b"PK\x03\x04"))
    while data[entry + 46 : entry + 46 + len(record)] != record.encode():
        entry = data.index(b"PK\x01\x02", entry + 4)
    start = entry + at
    return data[:start] + value.to_bytes(size, "little") + data[start + size :]


def test_records_on_one_another() -> None:
    data = good()
    first = zipfile.ZipFile(io.BytesIO(data)).getinfo("archive/data.pkl").header_offset
    with pytest.raises(RuntimeError, match="overlap"):
        cugrad.load(io.BytesIO(patched(data, "archive/version", 42, first, 4)))


@pytest.mark.parametrize("at", [20, 24])
def test_records_of_another_size(at: int) -> None:
    with pytest.raises(RuntimeError, match="failed reading zip archive"):
        cugrad.load(io.BytesIO(patched(good(), "archive/data/0", at, 1 << 30, 4)))


def test_records_outside_of_the_file() -> None:
    with pytest.raises(RuntimeError, match="failed reading zip archive"):
        cugrad.load(io.BytesIO(patched(good(), "archive/data/0", 42, 1 << 30, 4)))


def test_changed_elements_are_noticed() -> None:
    data = good().replace(FOUR.tobytes(), FOUR[::-1].tobytes())
    with pytest.raises(RuntimeError, match="data/0 is not what was written: its checksum differs"):
        cugrad.load(io.BytesIO(data))


def test_names_that_lead_out_are_names() -> None:
    """Nothing is written to disk; a name is looked up in the archive, whatever it says."""
    file = io.BytesIO()
    with Writer(file, "../../x") as out:
        out.write("data.pkl", tensor_pickle(key="../0"))
        out.write("version", b"3\n")
        out.write("data/../0", FOUR)
    with pytest.raises(RuntimeError, match="file not found in the archive"):
        cugrad.load(file)


FOREIGN = {
    "empty": (b"", EOFError, "Ran out of input"),
    "text": (b"hello world", pickle.UnpicklingError, "none that save.. wrote"),
    "a pickle": (pickle.dumps([1], 2), pickle.UnpicklingError, "the file is a pickle"),
    "an attack": (pickle.dumps(ATTACKS["exit"], 2), pickle.UnpicklingError, "is a pickle"),
    "half a zip": (b"PK\x03\x04" + bytes(50), RuntimeError, "failed reading zip archive"),
    "an empty zip": (b"PK\x05\x06" + bytes(18), RuntimeError, "it is empty"),
}


@pytest.mark.parametrize("name", list(FOREIGN))
@pytest.mark.parametrize("trusting", [False, True])
def test_other_files(name: str, trusting: bool) -> None:
    data, error, text = FOREIGN[name]
    with pytest.raises(error, match=text):
        cugrad.load(io.BytesIO(data), weights_only=not trusting)


def test_archives_of_other_things() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("a/readme.txt", "hello")
    with pytest.raises(RuntimeError, match="failed locating file version"):
        cugrad.load(file)
    with pytest.raises(RuntimeError, match="TorchScript archives"):
        cugrad.load(archive(pickle.dumps(1, 2), **{"constants.pkl": b"x"}))
    with pytest.raises(RuntimeError, match="the format has version"):
        cugrad.load(archive(pickle.dumps(1, 2), version=b"99\n"))
    with pytest.raises(RuntimeError, match="Unknown endianness type"):
        cugrad.load(archive(pickle.dumps(1, 2), byteorder=b"middle"))


def test_a_length_below_zero_leads_nowhere() -> None:
    """Neither back into what has been read, which would never end."""
    data = b"\x80\x02" + pickle.LONG4 + struct.pack("<i", -5) + b"."
    with pytest.raises(pickle.UnpicklingError, match="ends within -5 bytes"):
        cugrad.load(archive(data))


def test_every_truncation() -> None:
    data = good()
    for end in range(len(data)):
        with pytest.raises(REFUSED):
            cugrad.load(io.BytesIO(data[:end]))


# Chance -------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_changed_bytes_of_a_file(changes: list[tuple[int, int]]) -> None:
    data = bytearray(good())
    for at, value in changes:
        data[at % len(data)] = value
    try:
        found = cugrad.load(io.BytesIO(bytes(data)))
    except (*REFUSED, ValueError):
        return
    assert found.tolist() == [0, 1, 2, 3]  # a change of what is not read


def old_file(pickled: bytes, keys: Any = ("0",), count: int = 4) -> bytes:
    """A file of PyTorch before 1.6."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    head = [0x1950A86A20F9469CFC6C, 1001, system]
    return b"".join([
        *[pickle.dumps(part, 2) for part in head], pickled.replace(b"tQ", b"NtQ"),
        pickle.dumps(list(keys), 2), struct.pack("<q", count), FOUR.tobytes(),
    ])  # fmt: skip


def test_old_files_that_lie() -> None:
    honest = old_file(tensor_pickle())
    assert cugrad.load(io.BytesIO(honest)).tolist() == [0, 1, 2, 3]
    attack = old_file(pickle.dumps(ATTACKS["os.system"], 2))
    lies = [
        attack, old_file(tensor_pickle(), keys=["1"]), old_file(tensor_pickle(), keys=["0", "0"]),
        old_file(tensor_pickle(), keys=[[]]), old_file(tensor_pickle(), keys=[]),
        old_file(tensor_pickle(), count=5), old_file(tensor_pickle(count=1 << 40)),
        old_file(tensor_pickle(size=(5,))), old_file(tensor_pickle(key=0)), honest[:-1],
        old_file(tensor_pickle()).replace(pickle.dumps(1001, 2), pickle.dumps(1002, 2)),
        old_file(tensor_pickle()).replace(b"endianq\x02\x88", b"endianq\x02\x89"),
    ]  # fmt: skip
    for data in lies:
        for weights_only in (True, False):
            with pytest.raises(REFUSED):
                cugrad.load(io.BytesIO(data), weights_only=weights_only)
    assert not os.path.exists("/tmp/cugrad-was-here")


@pytest.mark.parametrize("kind", [str, bytes])
def test_an_error_shows_short_values_whole_and_the_beginning_of_long_ones(kind: type) -> None:
    """80 signs, quotes and all, are the most."""
    for length in range(100):
        value = "a" * length if kind is str else b"a" * length
        text = shown(value)
        if len(repr(value)) <= 80:
            assert text == repr(value)
        else:
            assert text == repr(value)[:40] + "..."
    assert len(shown(value * 1000)) == 43
