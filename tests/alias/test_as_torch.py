"""Programs that import torch run on cugrad; each in a process of its own, without PyTorch."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cugrad.alias.paths.torch_version import TorchVersion
from cugrad.alias.refusals import AbsentModule, refusal
from tests.support import ROOT
from tests.support.patience import patient

pytestmark = pytest.mark.host_only

PROGRAM = """
import sys, importlib.metadata, importlib.util, pickle
import torch, torch.fx.passes.shape_prop, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import cugrad

assert torch is cugrad and sys.modules["torch.nn"] is nn is cugrad.nn
assert importlib.import_module("torch.signal.windows.windows") is cugrad.signal.windows
amp = importlib.import_module("torch.cuda.amp.autocast_mode")
assert amp.autocast is torch.cuda.amp.autocast
from torch.cuda.amp.common import amp_definitely_not_available
assert cugrad.__spec__.name == "cugrad" and cugrad.nn.__spec__.name == "cugrad.nn"
assert importlib.util.find_spec("torch") and importlib.util.find_spec("torch.nn")
assert importlib.util.find_spec("torch.nothing") is None
assert importlib.metadata.version("torch") == torch.__version__ >= (2, 4)
assert "torch" in importlib.metadata.packages_distributions()
assert torch.Tensor.__module__ == torch.Size.__module__ == torch.dtype.__module__ == "torch"
assert not hasattr(torch, "nothing") and not hasattr(torch.nn, "nothing")
F.ours = 1
assert cugrad.nn.functional.ours == 1

assert torch.fx.passes.shape_prop.ShapeProp.__mro__[1] is torch.fx.Interpreter
class Program(torch.export.ExportedProgram, nn.Module): pass
try: Program()
except NotImplementedError as error: assert "torch.export.ExportedProgram: " in str(error)
else: raise AssertionError
try: torch.ops.torchvision.nms(1)
except NotImplementedError as error: assert "torch.ops.torchvision.nms: " in str(error)
else: raise AssertionError

import torch.autograd.gradcheck, torch.multiprocessing.spawn  # the packages have functions so named
assert torch.autograd.gradcheck is cugrad.autograd.gradcheck.__globals__["gradcheck"]
assert callable(torch.multiprocessing.spawn) and torch.tensor([1.0]).device.type == "cpu"

named = b"ctorch.nn.modules.linear\\nLinear\\n(I2\\nI3\\ntR."  # names a class
layer = pickle.loads(named)
for inputs, targets in DataLoader(TensorDataset(torch.ones(4, 2), torch.ones(4, 3)), batch_size=2):
    F.mse_loss(layer(inputs), targets).backward()
print(type(layer) is nn.Linear, sys.argv, __name__, sys.path[0] == __file__.rpartition("/")[0])
if len(sys.argv) > 1:
    torch.ones(2) @ torch.ones(3)
"""

FUNCTORCH = """
import warnings, torch, functorch
from functorch.experimental import chunk_vmap
from torch import nn
warnings.simplefilter("ignore", FutureWarning)
net = nn.Linear(2, 3)
f, params = functorch.make_functional(net)
x = torch.ones(4, 2)
f(params, x).sum().backward()
assert torch.equal(f(params, x), net(x)) and params[1].grad.tolist() == [4, 4, 4]
assert net.bias.grad is None and not functorch.make_functional(net, True)[1][0].requires_grad
nets = [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval() for _ in range(3)]
f, params, buffers = functorch.combine_state_for_ensemble(nets)
both = functorch.vmap(f, (0, 0, None))(params, buffers, x)
assert all(torch.allclose(a, n(x), atol=1e-6) for a, n in zip(both, nets))
assert torch.equal(functorch.grad(torch.sin)(x[0, 0]), x[0, 0].cos())
assert torch.equal(chunk_vmap(torch.sin, chunks=2)(x), x.sin())
for wrong in (lambda: functorch.make_functional(nets[0]),
              lambda: functorch.combine_state_for_ensemble([]),
              lambda: functorch.combine_state_for_ensemble([net, nets[0]]),
              lambda: functorch.combine_state_for_ensemble([net, nn.Linear(2, 3).eval()])):
    try:
        wrong()
        raise AssertionError
    except RuntimeError:
        pass
try:
    from functorch.compile import aot_function
    aot_function(len)
except NotImplementedError as error:
    print(error)
"""


def python(
    *arguments: str, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=patient(),
        env={**os.environ, "CUGRAD_DEVICE": "cpu", "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_program_runs_as_it_is(program: str) -> None:
    run = python("-m", "cugrad.as_torch", program)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"True {[program]} __main__ True\n"


def test_functorch_has_the_names_of_torch_func(tmp_path: Path) -> None:
    (tmp_path / "transform.py").write_text(FUNCTORCH)
    run = python("-m", "cugrad.as_torch", str(tmp_path / "transform.py"))
    assert (run.returncode, run.stderr) == (0, "") and "uncompiled" in run.stdout


def test_an_error_of_the_program_has_its_own_traceback(program: str) -> None:
    run = python("-m", "cugrad.as_torch", program, "--fail")
    assert run.returncode == 1 and f"{[program, '--fail']}" in run.stdout
    lines = run.stderr.splitlines()
    assert lines[1].startswith(f'  File "{program}", line ') and "RuntimeError" in lines[-1]
    assert "runpy" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which program?"), (("nothing.py",), "there is no such file"),
        (("--fast", "x.py"), "unknown option --fast"), (("-m", "nothing"), "No module named"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_gets_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cugrad.alias.command import main

    before = sys.argv, sys.path[:]
    try:
        assert main(list(arguments)) == 2
    finally:
        sys.argv, sys.path[:] = before
    text = capsys.readouterr().err
    assert said in text and "Traceback" not in text and len(text.splitlines()) == 2


UNLOADED = """
import sys, cugrad
from cugrad import as_torch, nn, utils  # what is imported when it is asked for

def state():
    names = dict(vars(cugrad)), dict(vars(cugrad.version))
    return *names, sys.meta_path[:], cugrad.Tensor.__module__

before = state()
assert cugrad.ones(1).is_cuda and cugrad.get_default_device().type == "cuda"
for _ in range(2):
    with cugrad.as_torch.installed():
        import torch, torch.export, torch.utils, torch.nn.functional, torch.sparse.semi_structured
        assert torch.ones(1).is_cpu and torch.get_default_device() == torch.device("cpu")
        with cugrad.as_torch.installed():
            from torch import onnx
        import torch.nn.qat
    assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]
    assert state() == before and cugrad.ones(1).is_cuda
try: cugrad.export
except AttributeError: pass
else: raise AssertionError
sys.modules["torch"] = sys
try: import cugrad.as_torch
except ImportError as error: print(error)
"""


def test_the_context_leaves_nothing_and_another_torch_is_refused() -> None:
    run = python("-W", "ignore", "-c", UNLOADED, CUGRAD_DEVICE="", CUGRAD_SIMULATE_CUDA="1")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("cugrad cannot take the name torch: torch is imported already")


PAGE = """
import doctest, sys
run = doctest.testfile("docs/as-torch.md", module_relative=False, optionflags=doctest.ELLIPSIS)
sys.exit(run.failed)
"""


def test_the_page_says_what_happens() -> None:
    assert doctest.DocTestParser().get_examples((ROOT / "docs/as-torch.md").read_text())
    run = python("-c", PAGE)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_version_compares_by_its_numbers() -> None:
    version = TorchVersion("2.13.0+cugrad0.1.0")
    assert version >= "2.9" and version > (2, 12) and version < (3,) and version <= "2.13"
    assert version == (2, 13) and version != (2, 12, 9) and version == "2.13.0+cugrad0.1.0"
    assert (
        version != "2.13.0" and hash(version) == hash(str(version)) and version.split(".")[0] == "2"
    )


def test_what_stands_for_absent_names() -> None:
    module = AbsentModule("torch.fx", "no graphs")
    tracer = module.Tracer
    assert tracer is refusal("torch.fx.Tracer", "no graphs") and tracer[int] is tracer
    assert tracer.__module__ == "torch.fx" and not isinstance(3, tracer | None)
    with pytest.raises(NotImplementedError, match=r"^torch\.fx\.Tracer\.trace: no graphs \(docs"):
        tracer.trace()
    with pytest.raises(AttributeError, match="'Ours' has no attribute 'trace'"):
        type("Ours", (tracer,), {}).trace  # noqa: B018
    with pytest.raises(AttributeError):
        module.__wrapped__  # noqa: B018
