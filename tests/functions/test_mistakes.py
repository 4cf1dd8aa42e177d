"""A wrong argument is one clear error: PyTorch's type, a text that names function or argument."""

from __future__ import annotations

import builtins
import re
import warnings
from typing import Any

import pytest

import cugrad
from cugrad.functions.calls.mistakes import FOREIGN
from tests.support.pinned_torch import cases

CALLS = r"""
randn("3")
rand("3")
zeros("3")
ones("3")
empty("3")
full("3", 1)
full((2,), "a")
full(2.5, 1)
randint("3", (2,))
randint(3)
randint(3, "2")
randint(3, 2, (2,))
randperm("3")
randperm(-1)
arange("3")
arange(1, "3")
linspace("0", 1, 3)
linspace(0, 1, "3")
logspace(0, 1, "3")
eye("3")
eye(2.5)
zeros(2.5)
zeros(-1)
ones((2, "3"))
zeros((2.5, 3))
randn(2, -3)
zeros(2, dtype="float32")
zeros(2, device="gpu")
zeros(2, device=3.5)
ones(2, requires_grad="a")
tensor("a")
tensor(["a"])
tensor({})
tensor([[1, 2], [3]])
tensor([1, None])
tensor()
tensor(1, dtype="int")
as_tensor("a")
from_numpy([1])
zeros_like([1])
ones_like(3)
full_like(ones(2), "a")
full_like([1], 2)
empty_like("a")
rand_like(3)
randn_like([1.0])
randint_like(ones(2), "3")
normal("a", 1, (2,))
normal(0, 1)
bernoulli(3)
bernoulli("a")
multinomial([1.0], 1)
multinomial(ones(3), "1")
poisson(3)
nn.Linear("3", 4)
nn.Linear(3, "4")
nn.Linear(3)
nn.Linear(3.5, 4)
nn.Linear(-1, 2)
nn.Linear(3, 4)(3)
nn.Linear(3, 4)("a")
nn.Linear(3, 4)([1.0, 2, 3])
nn.Linear(3, 4)()
nn.Linear(3, 4)(ones(3).long())
nn.Linear(3, 4)(ones(2, 5))
nn.Conv2d("3", 4, 3)
nn.Conv2d(3, 4, "3")
nn.Conv2d(3, 4)
nn.Conv2d(3, 4, 3, padding="a")
nn.Conv2d(3, 4, 3, groups=2)
nn.Conv2d(3, 4, 3, padding_mode="a")
nn.Conv2d(3, 4, 3)(ones(3, 8))
nn.Conv2d(3, 4, 3)(3)
nn.Conv2d(3, 4, 3)(ones(1, 5, 8, 8))
nn.Conv2d(3, 4, 3)(ones(1, 3, 2, 2))
nn.Conv2d(3, 4, 3, stride=0)(ones(1, 3, 8, 8))
nn.BatchNorm2d("3")
nn.BatchNorm2d(3)(ones(2, 3))
nn.BatchNorm2d(3)(ones(2, 4, 2, 2))
nn.BatchNorm1d(3)(ones(1, 3))
nn.LayerNorm("4")
nn.LayerNorm(4)(ones(2, 3))
nn.LayerNorm(4)(3)
nn.GroupNorm(2, 3)
nn.GroupNorm("2", 4)
nn.Embedding("3", 4)
nn.Embedding(3, 4)(ones(2))
nn.Embedding(3, 4)(3)
nn.Embedding(3, 4)(tensor([5]))
nn.Embedding(3, 4, padding_idx=7)
nn.Dropout("a")
nn.Dropout(2)
nn.Dropout(0.5)(3)
nn.MultiheadAttention(5, 2)
nn.MultiheadAttention("4", 2)
nn.MultiheadAttention(4, 2)(ones(2, 3, 4))
nn.Sequential(3)
nn.Sequential(nn.Linear(3, 4), 3)
nn.ModuleList([3])
nn.ModuleList(3)
nn.ModuleDict([3])
nn.Parameter(3)
nn.Parameter([1.0])
nn.ReLU()(3)
nn.ReLU("a")(3)
nn.Softmax(dim="a")(ones(2))
nn.Softmax(dim=3)(ones(2))
nn.CrossEntropyLoss()(ones(2, 3), ones(2))
nn.CrossEntropyLoss()(ones(2, 3), tensor([0, 5]))
nn.CrossEntropyLoss()(ones(2, 3), [0, 1])
nn.CrossEntropyLoss(reduction="a")(ones(2, 3), tensor([0, 1]))
nn.CrossEntropyLoss(weight=[1.0])
nn.MSELoss()(ones(2), 3)
nn.MSELoss()(ones(2), [1.0, 2])
nn.BCELoss()(ones(2), ones(3))
nn.BCELoss()(ones(2) * 2, ones(2))
nn.NLLLoss()(ones(2, 3), ones(2, 3))
nn.MaxPool2d("2")(ones(1, 1, 4, 4))
nn.MaxPool2d(2)(ones(4))
nn.MaxPool2d(2)(3)
nn.AvgPool2d(2)(3)
nn.AdaptiveAvgPool2d("a")(ones(1, 1, 4, 4))
nn.Flatten("a")(ones(2, 3))
nn.Upsample(scale_factor="a")(ones(1, 1, 4, 4))
nn.Upsample()(ones(1, 1, 4, 4))
nn.ConvTranspose2d(3, 4, "3")
nn.PReLU("a")
nn.LeakyReLU("a")(ones(2))
nn.functional.layer_norm(ones(2, 4), 4)
nn.functional.layer_norm(ones(2, 4), "4")
nn.functional.layer_norm(3, (4,))
nn.functional.relu(3)
nn.functional.relu("a")
nn.functional.gelu(3)
nn.functional.gelu(ones(2), approximate="x")
nn.functional.silu([1.0])
nn.functional.softmax(3, 0)
nn.functional.softmax(ones(2), "a")
nn.functional.log_softmax(3, 0)
nn.functional.linear(ones(2), 3)
nn.functional.linear(3, ones(2, 2))
nn.functional.conv2d(ones(1, 1, 4, 4), 3)
nn.functional.conv2d(3, ones(1, 1, 2, 2))
nn.functional.conv2d(ones(1, 1, 4, 4), ones(1, 1, 2, 2), stride="a")
nn.functional.conv1d(ones(1, 1, 4), ones(1, 1, 2), padding=2.5)
nn.functional.dropout(3)
nn.functional.dropout(ones(2), "a")
nn.functional.dropout(ones(2), 2)
nn.functional.embedding(3, ones(2, 2))
nn.functional.embedding(tensor([0]), 3)
nn.functional.cross_entropy(3, 4)
nn.functional.cross_entropy(ones(2, 3), 1)
nn.functional.mse_loss(3, 4)
nn.functional.l1_loss(ones(2), "a")
nn.functional.one_hot(3)
nn.functional.one_hot(ones(2))
nn.functional.one_hot(tensor([3]), 2)
nn.functional.pad(ones(2), 3)
nn.functional.pad(ones(2), (1, "a"))
nn.functional.pad(ones(2), (1,))
nn.functional.pad(3, (1, 1))
nn.functional.interpolate(3, 2)
nn.functional.interpolate(ones(1, 1, 4, 4), "a")
nn.functional.max_pool2d(ones(1, 1, 4, 4), "a")
nn.functional.avg_pool2d(ones(1, 1, 4, 4), 2.5)
nn.functional.batch_norm(ones(2, 3), None, None)
nn.functional.batch_norm(3, None, None, training=True)
nn.functional.group_norm(ones(2, 4), "2")
nn.functional.group_norm(ones(2, 4), 3)
nn.functional.normalize(3)
nn.functional.cosine_similarity(ones(2), 3)
nn.functional.scaled_dot_product_attention(ones(2, 3), 3, 4)
nn.functional.binary_cross_entropy(ones(2), 1)
nn.functional.kl_div(ones(2), 3)
nn.functional.nll_loss(ones(2, 3), 3)
nn.functional.unfold(3, 2)
nn.functional.grid_sample(ones(1, 1, 2, 2), 3)
nn.functional.pixel_shuffle(ones(1, 4, 2, 2), "2")
nn.functional.rms_norm(ones(2, 4), 4)
ones(2).fill_("a")
ones(2).fill_(None)
ones(2).fill_(ones(2))
ones(2).add_("a")
ones(2) + "a"
ones(2) + None
ones(2) + [1, 2]
ones(2) * "a"
ones(2) @ 3
ones(2) @ "a"
ones(2) > "a"
ones(2)["a"]
ones(2)[2.5]
ones(2)[5]
ones(2).view("a")
ones(2).view(2.5)
ones(2).view(3)
ones(2).reshape("a")
ones(2).reshape(3)
ones(2, 2).permute(0)
ones(2, 2).permute("a")
ones(2, 2).transpose(0, "a")
ones(2, 2).transpose(0, 5)
ones(2).expand("a")
ones(2).expand(3)
ones(2).sum("a")
ones(2).sum(5)
ones(2).sum(dim=1.5)
ones(2).mean("a")
ones(2).long().mean()
ones(2).max("a")
ones(2).argmax("a")
ones(2).squeeze("a")
ones(2).unsqueeze("a")
ones(2).unsqueeze(5)
ones(2).unsqueeze()
ones(2).to("a")
ones(2).type("a")
ones(2).copy_("a")
ones(2).index_select(0, 3)
ones(2).index_select(0, ones(1))
ones(2).gather(0, 3)
ones(2).gather(0, ones(1))
ones(2).scatter_(0, 3, 4)
ones(2).masked_fill_(3, 4)
ones(2).masked_fill(ones(2), 4)
ones(2).masked_fill(ones(2).bool(), "a")
ones(2).masked_select(3)
ones(2).clamp("a")
ones(2).clamp()
ones(2).pow("a")
ones(2).repeat("a")
ones(2).split("a")
ones(2).chunk("a")
ones(2).chunk(0)
ones(2).topk("a")
ones(2).topk(5)
ones(2).sort("a")
ones(2).cumsum("a")
ones(2).norm("a")
ones(2).item(5)
ones(2).item()
ones(2).backward()
ones(2).requires_grad_("a")
ones(2).long().requires_grad_()
ones(2).uniform_("a")
ones(2).normal_("a")
ones(2).bernoulli_("a")
ones(2).random_("a")
ones(2).zero_(3)
ones(2).dot(3)
ones(2).mm(ones(2))
ones(2, 2).mm(3)
ones(2, 2).bmm(ones(2, 2))
float(ones(2))
int(ones(2))
bool(ones(2))
len(ones(()))
iter(ones(()))
cat(3)
cat([3])
cat([ones(2), 3])
cat([ones(2), ones(2)], "a")
cat([ones(2), ones(2, 2)])
cat([])
stack(3)
stack([3])
stack([ones(2), ones(3)])
where(3, ones(2), ones(2))
where(ones(2), ones(2), ones(2))
matmul(3, ones(2))
matmul(ones(2), 3)
matmul(ones(2, 3), ones(2, 3))
einsum(3, ones(2))
einsum("ij", ones(2))
exp(3)
exp("a")
exp()
exp(ones(2), ones(2))
add(ones(2))
add(ones(2), "a")
mul("a", ones(2))
sum(3)
sum("a")
mean(3)
max(3)
max(ones(2), 3)
clamp(3, 0, 1)
clamp(ones(2), "a")
sqrt("a")
softmax(ones(2))
sort(3)
topk(ones(2))
split(3, 1)
split(ones(4), 2.5)
chunk(3, 2)
squeeze(3)
reshape(3, (1,))
reshape(ones(2), "a")
flatten(3)
transpose(3, 0, 1)
permute(3, (0,))
gather(3, 0, 1)
masked_select(ones(2), 3)
index_select(ones(2), "a", tensor([0]))
nonzero(3)
unique(3)
bincount(3)
bincount(ones(2))
tril(3)
triu(ones(2), 0)
diag(3)
outer(3, 4)
linalg.inv(3)
linalg.inv(ones(2, 3))
linalg.norm(3)
linalg.solve(ones(2, 2), 3)
linalg.svd(3)
linalg.qr(3)
fft.fft(3)
fft.fft(ones(2), "a")
clamp(view_as_complex(ones(1, 2)), 0.5)
allclose(3, 4)
equal(3, 4)
isclose(ones(2), 3)
set_default_dtype("float32")
set_default_dtype(int64)
set_default_device("gpu")
set_grad_enabled("a")
autograd.grad(3, 4)
autograd.grad(ones(2), ones(2))
autograd.backward(3)
optim.SGD(3, 0.1)
optim.SGD(nn.Linear(2, 2).parameters(), "a")
optim.Adam(nn.Linear(2, 2).parameters(), betas=3)
nn.init.normal_(3)
nn.init.constant_(ones(2), "a")
nn.init.xavier_uniform_(ones(2))
nn.utils.clip_grad_norm_([ones(2)], "a")
nn.utils.clip_grad_norm_(3, 1.0)
utils.checkpoint.checkpoint(3, use_reentrant=False)
load(3)
vmap(lambda x: x)(3)
func.grad(lambda x: x)(ones(2))
nn.Linear(2, 2).load_state_dict({"a": 3})
nn.Linear(2, 2).register_buffer(3, ones(2))
nn.Linear(2, 2).register_buffer("a", 3)
nn.Linear(2, 2).to("a")
nn.Linear(2, 2).to(int64)
nn.Linear(2, 2).foo
nn.Linear(2, 2).apply(3)
device("a")
device(3.5)
Size("a")
Size([1, 2.5])
Size([tensor(2.0)])
Size([None])
Size([2]) + (2.5,)
Size([2]) + [3]
Generator("gpu")
finfo(int64)
iinfo(float32)
amp.autocast(3)
ones(3, 3).addr_(ones(3), 2.0)
addr(ones(3, 3), 2.0, ones(3))
ones(3, 3).type_as(2)
ones(3, 3).view_as(2)
ones(3, 3).expand_as(2)
ones(3, 3).reshape_as(2)
ones(3, 3).narrow(0, "a", 1)
ones(3, 3).fill_diagonal_(ones(3))
ones(3).normal_(ones(3))
ones(3).normal_(0, ones(3))
ones(3).uniform_(ones(3), 2)
ones(3).log_normal_(ones(3))
ones(3).log_normal_(ones(3, dtype=bool), 2.0)
ones(3).cauchy_(ones(3))
ones(3).exponential_(ones(3))
ones(3).geometric_(ones(3))
ones(3).random_(ones(3))
ones(3).random_(0, ones(3))
ones(3).mvlgamma_(ones(3))
"""

# Calls whose error has another type than PyTorch's, or none, and why.
OTHER = {
    'tensor(["a"])': "a TypeError as of all that is no number",
    'nn.Conv2d(3, 4, "3")': "a ValueError that names the layer's argument",
    'nn.ConvTranspose2d(3, 4, "3")': "the same",
    'nn.AdaptiveAvgPool2d("a")(ones(1, 1, 4, 4))': "the sizes are read as numbers first",
    'nn.functional.layer_norm(ones(2, 4), "4")': "a str is a sequence",
    "nn.functional.pad(ones(2), 3)": "one number is a list of one",
    'ones(2).type("a")': "a type may be a device, too",
}


class Names(dict[str, Any]):
    """A library's names, and Python's."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib

    def __missing__(self, name: str) -> Any:
        if name in ("float", "int", "bool", "len", "iter", "set"):
            return getattr(builtins, name)
        return getattr(self.lib, name)


def error_of(lib: Any, call: str) -> BaseException | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(call, Names(lib))
        except Exception as error:
            return error
    return None


NAMED_DIMS = [  # a text was the name of a dim, before PyTorch 2.13
    'cat([ones(2), ones(2)], "a")', 'index_select(ones(2), "a", tensor([0]))',
    'nn.Softmax(dim="a")(ones(2))', 'nn.functional.softmax(ones(2), "a")',
    *[f'ones(2).{name}("a")' for name in ("cumsum", "max", "mean", "sort", "squeeze", "sum")],
]  # fmt: skip


@pytest.mark.parametrize("call", cases(CALLS.strip().splitlines(), NAMED_DIMS))
def test_a_mistake_is_said_of_the_call(call: str) -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = error_of(torch, call), error_of(cugrad, call)
    assert theirs is not None
    if call in OTHER:
        assert type(ours) is not type(theirs), "take it from OTHER"
        assert ours is None or not re.search(FOREIGN, str(ours))
        return
    assert ours is not None, "no error"
    wanted = type(theirs).__name__
    if wanted == "AttributeError" and re.search(FOREIGN, str(theirs)):
        wanted = "TypeError"  # where PyTorch's own Python stumbles, too
        assert type(ours).__name__ in (wanted, "AttributeError")
    else:
        assert type(ours).__name__ == wanted
    if re.search(FOREIGN, str(ours)):
        assert re.search(FOREIGN, str(theirs)), "says what stumbled inside, not which argument"


def test_an_error_of_the_user_s_own_is_left_alone() -> None:
    class Own(cugrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.no_such_thing

    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'no_such_thing'"):
        Own()(cugrad.ones(1))
    with pytest.raises(AttributeError, match="'int' object has no attribute 'no_such_thing'"):
        cugrad.nn.Sequential(Own())(3)


def test_the_line_of_the_call_is_the_last_but_the_library_s() -> None:
    with pytest.raises(TypeError) as said:
        cugrad.nn.functional.conv2d(3, cugrad.ones(1, 1, 2, 2))
    assert str(said.value) == "conv2d(): argument 'input' (position 1) must be Tensor, not int"
    assert said.value.__suppress_context__ and len(said.traceback) == 2
    with pytest.raises(IndexError, match="Dimension out of range"):
        cugrad.softmax(cugrad.ones(2), 3)


def test_errors_in_code_of_the_user_s_keep_their_text_and_lines() -> None:
    """In a hook, in an argument's own methods, in a module's forward."""

    def pack(tensor: Any) -> Any:
        raise TypeError("'int' object is not iterable")

    class Layers(cugrad.nn.Module):
        def forward(self, x: Any) -> Any:
            return cugrad.nn.functional.conv2d(x, 3)

    x = cugrad.ones(1, 1, 4, 4, requires_grad=True)
    hooks = cugrad.autograd.graph.saved_tensors_hooks(pack, pack)
    with pytest.raises(TypeError, match="^'int' object is not iterable$") as said, hooks:
        cugrad.cumprod(x, 0)
    assert said.traceback[-1].name == "pack"
    with pytest.raises(TypeError, match=r"^conv2d\(\): argument 'weight'") as said:
        Layers()(x)
    assert "forward" in [entry.name for entry in said.traceback]
    with pytest.raises(TypeError, match=r"^conv2d\(\): argument 'input'") as said:
        cugrad.nn.Sequential(cugrad.nn.Conv2d(1, 1, 2))(3)


SIZES = """
ones(3).reshape("3")
ones(3).view("3")
ones(3).expand("3")
ones(3, 2).permute("3", 0)
ones(2).tile("3")
ones(2).repeat("3")
nn.functional.pad(ones(2), "x")
nn.Linear("3", 4)
nn.Embedding("3", 4)
nn.LayerNorm("3")
""".strip().splitlines()


@pytest.mark.parametrize("call", SIZES)
def test_a_size_that_is_none_names_the_function(call: str) -> None:
    """That which the user has called, or a layer."""
    with pytest.raises(TypeError, match="ints") as caught:
        eval(call, Names(cugrad))
    name = "empty" if "nn.L" in call or "nn.E" in call else call.partition('("')[0].split(".")[-1]
    assert str(caught.value).startswith(name.partition("(")[0] + "(): argument '")


OF_STATE = ("_", "set_", "use_", "manual", "seed", "load", "save", "init", "import_")


@pytest.mark.parametrize("bad", [[1.0, 2.0], None, object()], ids=["list", "None", "object"])
def test_what_is_no_tensor_is_no_attribute_error(bad: Any) -> None:
    """In each function of the top: a message of Python's names neither function nor argument."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    names = [
        name
        for name in dir(cugrad)
        if not name.startswith(OF_STATE)
        and callable(getattr(torch, name, None))
        and not any(isinstance(getattr(lib, name), type) for lib in (torch, cugrad))
        and callable(getattr(cugrad, name))
    ]
    assert len(names) > 500
    wrong = []
    for name in names:
        for more in ((), (1,), (0, 1), (cugrad.ones(2, 3),)):
            try:
                getattr(cugrad, name)(bad, *more)
            except AttributeError as error:
                wrong.append((name, str(error)))
            except Exception:  # of any other kind
                pass
    assert not wrong
