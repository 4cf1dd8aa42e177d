"""What every test gets: sealed global state, a fixed seed, and the devices to run on."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import inspect
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# PyTorch's compiler, which some of its own functions start, would set it in the middle of a test.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.gettempdir())
# Convolutions are the same in every bit on any machine; what is cuDNN's asks for it.
os.environ.setdefault("CUGRAD_CUDNN", "0")


@functools.cache
def settle_hypothesis() -> None:
    """Derandomized: a red run names a fault of the change, not of the day's luck."""
    try:
        import hypothesis
    except ImportError:  # the tests that need it say so themselves
        return
    hypothesis.settings.register_profile("cugrad", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("cugrad")
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "is_local_module_file"):
        # The numbers that stand in whatever files a process has imported are drawn as well: in
        # each worker others, for which it reads all of the library and of the tests.
        providers.is_local_module_file = lambda path: False


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Before a file that draws is imported; the others do without what takes a second to import."""
    if b"hypothesis" in module_path.read_bytes():
        settle_hypothesis()


# Devices ------------------------------------------------------------


def usable_devices() -> list[str]:
    """The devices that tests run on: "cpu", "simulated", and "cuda" where it works; CUGRAD_DEVICE
    picks one.
    """
    return list(_usable_devices(os.environ.get("CUGRAD_DEVICE")))


@functools.cache
def _usable_devices(asked: str | None) -> tuple[str, ...]:
    import cugrad.backends

    if asked == "cuda":
        cugrad.backends.get("cuda")  # raises, and says what is missing
    if asked in ("cpu", "simulated", "cuda"):
        return (asked,)
    return ("cpu", "simulated", *["cuda"] * cugrad.backends.is_usable("cuda"))


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """Each usable device in turn, by name."""
    return str(request.param)


@pytest.fixture
def backend(device: str) -> Any:
    """The Backend of each usable device in turn."""
    import cugrad.backends

    return cugrad.backends.get(device)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that takes a device on each usable one, unless it says itself on which.

    What `per_row` marks is spared the simulated device; CUGRAD_DEVICE=simulated runs it there.
    """
    test, devices = metafunc.definition, usable_devices()
    own = [mark.args[0] for mark in test.iter_markers("parametrize")]
    own = [name.strip() for names in own
           for name in (names.split(",") if isinstance(names, str) else names)]  # fmt: skip
    if "device" not in metafunc.fixturenames or "device" in own:
        return
    marker = test.get_closest_marker("per_row")  # of the test before that of its file
    if marker is not None and not marker.kwargs.get("simulated"):
        if "CUGRAD_DEVICE" not in os.environ:
            devices.remove("simulated")
    metafunc.parametrize("device", devices, indirect=True)


# The library itself on each device, and PyTorch where it is installed: a test that takes `lib` and
# asserts of it what the test's name says is true of both. A run for one device says nothing of
# PyTorch, which there may be older than the one whose words the tests know.
LIBRARIES = [f"cugrad-{name}" for name in usable_devices()]
if "CUGRAD_DEVICE" not in os.environ and importlib.util.find_spec("torch") is not None:
    LIBRARIES.append("torch")


@pytest.fixture(params=LIBRARIES)
def lib(request: pytest.FixtureRequest) -> Any:
    """cugrad on each usable device, then PyTorch, as the module that a script would import."""
    return importlib.import_module(request.param.partition("-")[0])


def place(test: pytest.Item) -> tuple[Any, str | None]:
    """Has tensors of a test live on its `device`, and on the CPU where it takes none; what was
    before.

    This is the process's first choice and CUGRAD_DEVICE, so that the threads and the processes
    which a test starts agree with it; the thread's own default stays unset, and sealed.
    """
    params = getattr(test, "callspec", None)
    given: dict[str, Any] = params.params if params else {}
    where = given.get("device") or given.get("lib", "").partition("-")[2] or "cpu"
    devices: Any = importlib.import_module("cugrad.device")
    before = devices._process_default, os.environ.get("CUGRAD_DEVICE")
    devices._process_default = devices.device(where)
    os.environ["CUGRAD_DEVICE"] = where
    return before


def place_as_before(first: Any, asked: str | None) -> None:
    importlib.import_module("cugrad.device")._process_default = first  # type: ignore[attr-defined]
    if asked is None:
        del os.environ["CUGRAD_DEVICE"]
    else:
        os.environ["CUGRAD_DEVICE"] = asked


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what needs a GPU where there is none, and what an older PyTorch says otherwise;
    `--shard` keeps one slice of the tests.
    """
    if any("cuda" in item.keywords for item in items) and "cuda" not in usable_devices():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no usable GPU"))
    if (reason := importlib.import_module("tests.support.pinned_torch").too_old()) is not None:
        for item in items:
            if item.get_closest_marker("pinned_torch"):
                item.add_marker(pytest.mark.skip(reason=reason))
    number, _, of = config.getoption("--shard").partition("/")
    low, high = (len(items) * i // int(of) for i in (int(number) - 1, int(number)))
    kept = items[low:high]  # neighbours test one row and share its kernels, compiled but once
    config.hook.pytest_deselected(items=items[:low] + items[high:])
    items[:] = kept


@pytest.fixture(scope="module", autouse=True)
def collected() -> None:
    """What is there before a file's tests is left out of collections: many tests start one, and
    each would walk through PyTorch, the samples, 30,000 tests and the reports of those that ran.
    What a finalizer lets go of is collected first: what is garbage then would be there for good.
    """
    while gc.collect():
        pass
    gc.freeze()


# What CUDA says of every call after a fault of a kernel: the process cannot use the device again.
LOST = ("cudaErrorIllegalAddress", "cudaErrorMisalignedAddress", "cudaErrorLaunchFailure",
        "cudaErrorIllegalInstruction", "cudaErrorAssert")  # fmt: skip


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Ends a run on a GPU whose context is lost: ci/gpu.py begins another behind this file."""
    if report.failed and os.environ.get("CUGRAD_DEVICE") == "cuda":
        if any(name in str(report.longrepr) for name in LOST):
            pytest.exit(f"the CUDA context is lost since {report.nodeid}", 70)


def pytest_configure() -> None:
    """Programs are drawn from a new seed each time."""
    os.environ.setdefault("CUGRAD_FUZZ_SEED", str(random.SystemRandom().randrange(10**9)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No collection of garbage looks at forty thousand tests again and again as they are made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With others that have forked from this process where that is told (support/in_turns.py)."""
    told = session.config.getoption("--in-turns")
    if not told or session.testsfailed or session.config.option.collectonly:
        return None
    in_turns = importlib.import_module("tests.support.in_turns")
    in_turns.run(session, in_turns.Turns(told))
    return True


def pytest_unconfigure() -> None:
    """What the last tests left is told of still; then no collection walks through all that was
    imported.
    """
    if (forked := sys.modules.get("tests.support.forked")) is not None:
        forked.end()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    ran = [
        each.nodeid for name in ("passed", "failed") for each in terminalreporter.getreports(name)
    ]
    if any(name.endswith("test_programs_of_a_new_seed") for name in ran):
        seed = os.environ["CUGRAD_FUZZ_SEED"]
        terminalreporter.write_line(f"programs were drawn from CUGRAD_FUZZ_SEED={seed}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="I/N", help="the Ith of N equal slices")
    parser.addoption("--in-turns", metavar="N:FOLDER", help="see tests/support/in_turns.py")


# Sealed state ------------------------------------------------------------


# What programs set for good, which `kept` lets be.
LASTING = {"cugrad.autograd.anomaly_mode": "anomaly"}


@functools.cache
def defaults_of(kind: type) -> dict[str, Any]:
    """The fields that a thread-local has from its class."""
    values = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("__")}
    return {name: value for name, value in values.items() if not inspect.isroutine(value)}


def fields_of(state: object) -> dict[str, Any]:
    """The values of a thread-local's fields, those it has from its class too; lists by content."""
    values = {**defaults_of(type(state)), **vars(state)}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = type(value)(value)
    return values


@functools.cache
def _registries() -> tuple[list[list[Any]], list[Any]]:
    """The registries of `kept`, which grow as modules are imported; and what else lasts."""
    lasting = [getattr(importlib.import_module(module), name) for module, name in LASTING.items()]
    kept = importlib.import_module("cugrad.runtime.kept")
    return [kept.LOCALS, kept.LASTING, kept.OPEN], lasting


@functools.cache
def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def watched() -> list[tuple[str, object]]:
    """The global state that a test must leave as it found it: whatever registers with `kept`."""
    of_threads, lasting = _registries()
    return [(_name_of(type(x)), x) for x in (*chain(*of_threads), *lasting)]


def variables() -> dict[Any, Any]:
    """The environment as bytes: decoding it twice a test would cost more than all other state."""
    environment = dict(os.environ._data)  # type: ignore[attr-defined]
    environment.pop(b"PYTEST_CURRENT_TEST", None)  # is another in each phase of a test
    return environment


def put_back(environment: dict[Any, Any], now: dict[Any, Any]) -> list[str]:
    """Gives the environment its variables back; what each was and is."""
    leaks = []
    for key in environment.keys() | now.keys():
        name, was, found = (None if v is None else os.environ.decodevalue(v)  # type: ignore
                            for v in (key, environment.get(key), now.get(key)))  # fmt: skip
        if found != was:
            leaks.append(f"os.environ[{name!r}]: was {was!r}, is {found!r}")
            os.environ.pop(name, None)
            os.environ.update({} if was is None else {name: was})
    return leaks


def restore_functions() -> None:
    """Has public functions ask no class of their arguments, as before a subclass was defined."""
    if importlib.import_module("cugrad.runtime.dispatching").TWINS:
        importlib.import_module("tests.support.overriding").switch_off()


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    importlib.import_module("cugrad").manual_seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number)


RUNNING: list[pytest.Item] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    RUNNING[:] = [item]


def forget_streams() -> None:
    """What was recorded on streams is gone: a pass of the next test has no order with it."""
    queues = sys.modules.get("cugrad.backends.lending.queues")
    if queues is not None:
        queues.stretches.clear()


@pytest.fixture(autouse=True)
def sealed_state() -> Iterator[None]:
    """Fails a test that leaks global state, and puts the state back: one leak fails one test.

    Each has its own fixed seed, whichever tests ran before it, and its place. One fixture does it,
    without a `request`, of which pytest makes some for each fixture that takes one.
    """
    (test,) = RUNNING
    before_all = place(test)
    states = [(name, state, fields_of(state)) for name, state in watched()]
    environment = variables()
    restore_functions()  # which a module of tests that defines a subclass has switched
    seed(zlib.crc32(test.nodeid.encode()))
    yield
    leaks = []
    for name, state, before in states:
        after = fields_of(state)
        for field in after.keys() | before.keys() if after != before else ():
            found, wanted = after.get(field), before.get(field)
            if found is not wanted and found != wanted:
                leaks.append(f"{name}.{field}: was {wanted!r}, is {found!r}")
                setattr(state, field, wanted)
    restore_functions()
    forget_streams()
    if (now := variables()) != environment:
        leaks += put_back(environment, now)
    place_as_before(*before_all)
    assert not leaks, "the test leaks global state:\n" + "\n".join(leaks)
