"""Runs a script in PyTorch and in cugrad, statement by statement, and compares what they have."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import cugrad

from .prelude import PRELUDE

__all__ = ["ACCEPTED", "Difference", "difference_of", "shortened"]

# The row of the page, what a difference's text has, and the script's.
ACCEPTED = tuple(
    (*line.strip().split(" | "), "")[:3]
    for line in Path(__file__).with_name("accepted.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
)

# Where PyTorch has no formula, or no kernel, of which cugrad has one.
LACKS = re.compile(
    r"not implemented for '|derivative for aten::\S+ is not implemented|Could not run 'aten::"
    r"|Trying to use forward AD with \S+ that does not support it|Batching rule not implemented"
    r"|vmap: \S+.* is not possible because there exists a Tensor|Autograd not support dtype"
)
# How much further than PyTorch's numbers from those of float64.
FURTHER = 4

ELSEWHERE = r"on a GPU|^`amp\.autocast`$"  # rows that are about other devices than the host

NEAR = {"float64": 1e-6, "float32": 2e-3, "float16": 1e-1, "bfloat16": 1e-1}


@dataclass(frozen=True)
class Difference:
    """What is not as in PyTorch: of which statement, where, and both texts."""

    line: int
    statement: str
    where: str
    want: str
    got: str
    error: str = ""  # that both have raised

    @property
    def kind(self) -> tuple[str, str]:
        """By which a shorter script is known to show the same."""
        return self.statement, re.sub(r"\d+", "0", self.where)

    def __str__(self) -> str:
        return self.text(300)

    def text(self, most: int | None = None) -> str:
        """What differs; of values not more than `most` characters."""
        begin = f"after {self.error} " if self.error and self.where != "error" else ""
        return f"{begin}{self.where}: want {self.want[:most]}, got {self.got[:most]}"


def plain(value: Any) -> Any:
    """What is to be compared of a value: numbers, texts, and containers of them."""
    if isinstance(value, (torch.Tensor, cugrad.Tensor)):
        kind = str(value.dtype).removeprefix("torch.")
        name = type(value).__name__.removeprefix("Sparse")
        flags = ("requires grad" if value.requires_grad else "", name)
        if str(value.layout).endswith("sparse_coo"):
            value = value.detach().to_dense()
        wide = (cugrad if isinstance(value, cugrad.Tensor) else torch).float64
        return Numbers(kind, np.array(value.detach().cpu().to(wide).numpy(force=True)), flags)
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return Numbers("float64", np.array(value), ())
    if value is None or isinstance(value, (bool, int)):
        return value
    return re.sub(r"0x[0-9a-f]+|\bcugrad\b|\btorch\b|\.cuda\b| \((GPU \d|cuda:0)\)", "", str(value))


@dataclass
class Numbers:
    kind: str
    array: Any
    flags: tuple[str, ...]
    coarsest = "float64"  # the dtype that anything in the script may come of

    def __str__(self) -> str:
        return f"{self.kind}{self.array.tolist()} {' '.join(self.flags)}"

    def is_as(self, other: Numbers) -> bool:
        if (self.kind, self.flags, self.array.shape) != (
            other.kind, other.flags, other.array.shape
        ):  # fmt: skip
            return False
        near = max(NEAR.get(kind, 0) for kind in (self.kind, self.coarsest))
        with np.errstate(all="ignore"):
            least = 5e-1 if near == NEAR["bfloat16"] else 2e-2
            scale = np.abs(self.array[np.isfinite(self.array)]).max(initial=least)
            return bool(
                np.allclose(self.array, other.array, rtol=near, atol=near * scale, equal_nan=True)
            )


def builtin(kind: type) -> type:
    """The class of Python's own that an error is of."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def snapshot(names: dict[str, Any]) -> dict[str, Any]:
    """All that a script's objects have now, by the way to it."""
    seen: dict[str, Any] = {}
    net, sched = names.get("net"), names.get("sched")
    if net is not None and hasattr(net, "named_parameters"):
        for name, p in net.named_parameters(remove_duplicate=False):
            seen[f"net.{name}"], seen[f"net.{name}.grad"] = plain(p), plain(p.grad)
        for name, b in net.named_buffers(remove_duplicate=False):
            seen[f"net.{name}"] = plain(b)
        seen["keys"] = list(net.state_dict())
        seen["training"] = [module.training for module in net.modules()]
        seen["types"] = [type(module).__name__ for module in net.modules()]
    for name, held in (("", names.get("opt")), ("rest.", names.get("rest"))):
        if held is not None:
            seen.update((name + key, value) for key, value in optimizer_of(held).items())
    if sched is not None:
        seen["rates"] = plain([group["lr"] for group in sched.optimizer.param_groups])
        seen["epoch"] = sched.last_epoch if hasattr(sched, "last_epoch") else None
    seen["loss"] = plain(names.get("loss"))
    return seen


def optimizer_of(opt: Any) -> dict[str, Any]:
    """What a script's optimizer has."""
    groups = opt.param_groups
    every = [p for group in groups for p in group["params"]]
    return {
        "groups": [{k: plain(v) for k, v in group.items() if k != "params"} for group in groups],
        "sizes": [list(p.shape) for p in every],
        "names": [group.get("param_names") for group in groups],
        "states": len(opt.state),
    } | {
        f"state.{place}.{key}": plain(value)
        for place, p in enumerate(every) if p in opt.state
        for key, value in opt.state[p].items()
    }  # fmt: skip


def run(
    lib: Any, script: list[str], device: str = "cpu", context: str = "", looks: bool = True
) -> list[dict[str, Any]]:
    """What a library has behind each statement, the error that it raised, and what it printed.

    `context` is entered where there is an optimizer, and left behind the last statement. Without
    `looks` nothing is read before.
    """
    printed: list[Any] = []
    script_module = ModuleType("script")  # where pickles look for the classes of a script
    names: dict[str, Any] = script_module.__dict__
    names.update(
        t=lib, log=lambda *values: printed.append([plain(v) for v in values]), here=device
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    default = lib.get_default_dtype()
    with warnings.catch_warnings(), lib.device(device), ExitStack() as stack:
        warnings.simplefilter("ignore")
        stack.callback(sys.modules.pop, "script", None)
        sys.modules["script"] = script_module
        try:
            exec(PRELUDE, names)
            for statement in script:
                if context and "opt" in names:
                    stack.enter_context(eval(context, names))
                    context = ""
                printed.clear()
                error = ""
                try:
                    exec(statement, names)
                except Exception as raised:
                    error = builtin(type(raised)).__name__
                    text = str(raised)
                    found.append({"error": error, "text": text[:200], "printed": printed[:]})
                else:
                    found.append({"error": "", "text": "", "printed": printed[:]})
                last = len(found) == len(script)
                try:
                    if last:
                        stack.close()
                    if last or looks:
                        found[-1].update(snapshot(names))
                except Exception as raised:
                    found[-1]["snapshot"] = f"{type(raised).__name__} {raised}"
        finally:
            lib.set_default_dtype(default)
    return found


def apart(want: Any, got: Any, where: str) -> tuple[str, str, str] | None:
    """The first place where two values differ, and their texts."""
    if isinstance(want, Numbers) and isinstance(got, Numbers):
        return None if want.is_as(got) else (where, str(want), str(got))
    if isinstance(want, dict) and isinstance(got, dict):
        if list(want) != list(got) and set(want) != set(got):
            return f"{where} keys", str(list(want)), str(list(got))
        pairs = [(f"{where}.{key}", value, got[key]) for key, value in want.items()]
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        pairs = [(f"{where}.{i}", a, b) for i, (a, b) in enumerate(zip(want, got))]
    else:
        return None if want == got else (where, str(want), str(got))
    return next(filter(None, (apart(a, b, place) for place, a, b in pairs)), None)


# An error comes first, and what was printed, before what follows of them.
FIRST = ("error", "printed", "snapshot")


def difference_of(script: list[str], device: str = "cpu") -> Difference | None:
    """The first thing that cugrad has otherwise than PyTorch."""
    text = "\n".join(script)
    coarse = {"bfloat16": "bfloat16", "Muon": "bfloat16", "half()": "float16",
              "float16": "float16", "float32": "float32", "float()": "float32"}  # fmt: skip
    Numbers.coarsest = next((kind for word, kind in coarse.items() if word in text), "float64")
    wants, gots = run(torch, script), run(cugrad, script, device)
    found = first_difference(script, wants, gots, device)
    if found is not None and Numbers.coarsest != "float64":
        if is_of_rounding(script, found, wants, gots, device):
            return None
    return found


def is_of_rounding(
    script: list[str], found: Difference, wants: list[Any], gots: list[Any], device: str
) -> bool:
    """Whether a number is about as far from that of the script in float64, on which the libraries
    agree, as PyTorch's of its kind are: it may be a difference of what is nearly equal.
    """
    wide = [re.sub(r"\bt\.(bfloat16|float16|float32)\b", "t.float64", said) for said in script]
    wide = wide[: found.line + 1]
    coarsest, Numbers.coarsest = Numbers.coarsest, "float64"
    try:
        rights, mine = run(torch, wide), run(cugrad, wide, device)
        agree = first_difference(wide, rights, mine, device) is None
    finally:
        Numbers.coarsest = coarsest
    right, want, got = (seen[found.line].get(found.where) for seen in (rights, wants, gots))
    if not agree or not all(isinstance(x, Numbers) for x in (right, want, got)):
        return False
    if not right.array.shape == want.array.shape == got.array.shape or want.flags != got.flags:
        return False
    theirs = max(
        np.abs(x.array - rights[found.line][key].array).max(initial=0)
        for key, x in wants[found.line].items()
        if key.endswith(found.where[-5:]) and isinstance(x, Numbers)
        and isinstance(rights[found.line].get(key), Numbers)
        and x.array.shape == rights[found.line][key].array.shape
    )  # fmt: skip
    return bool(np.abs(got.array - right.array).max(initial=0) <= FURTHER * theirs)


def difference_in(script: list[str], context: str, device: str, looks: bool) -> Difference | None:
    """The first thing that is otherwise in a context that changes no number."""
    plain, within = [run(cugrad, script, device, text, looks) for text in ("", context)]
    found = first_difference(script, plain, within, device)
    failed = any(seen["error"] for seen, said in zip(plain, script) if "backward" in said)
    if found is not None and failed and "gradients='host'" in context:
        return None  # a pass that failed has filled .grad of leaves with hooks
    if found is not None and found.got == "RuntimeError no" and "hooks('no')" in found.statement:
        return None  # a context with hooks, in which they cannot be disabled
    if (
        found is not None
        and found.where in FIRST
        and ("by an inplace operation" in found.want or "Error budget: " in found.got)
    ):
        return None  # what a context has copied may be changed; and a limit may be too low
    return found


def first_difference(
    script: list[str], wants: list[dict[str, Any]], gots: list[dict[str, Any]], device: str
) -> Difference | None:
    for line, (statement, want, got) in enumerate(zip(script, wants, gots)):
        said = want.pop("text", ""), got.pop("text", "")
        for key in (*FIRST, *sorted((want.keys() | got.keys()) - set(FIRST))):
            found = apart(want.get(key, "absent"), got.get(key, "absent"), key)
            if found is not None:
                where, a, b = found
                if key == "error":
                    a, b = f"{a} {said[0]}", f"{b} {said[1]}"
                difference = Difference(line, statement, where, a, b, want["error"])
                known = is_accepted(difference, script[: line + 1], device)
                return None if known else difference
        if want["error"] and line < 5:
            return None  # it has no network, or no optimizer
    return None


def is_accepted(difference: Difference, script: list[str], device: str) -> bool:
    """Whether it stands on the page, or PyTorch alone has nothing for it."""
    if difference.where == "error" and LACKS.search(difference.want):
        return True
    return any(
        re.search(pattern, difference.text()) and re.search(text, "\n".join(script), re.S)
        for row, pattern, text in ACCEPTED
        if device != "cpu" or not re.search(ELSEWHERE, row)
    )


def shortened(
    script: list[str],
    difference: Difference,
    look: Callable[[list[str]], Difference | None] = difference_of,
) -> tuple[list[str], Difference]:
    """The script without the statements that the difference, which `look` finds, does not need."""
    script = script[: difference.line + 1]
    place = len(script) - 2
    while place >= 0:
        fewer = script[:place] + script[place + 1 :]
        found = look(fewer)
        if found is not None and found.kind == difference.kind:
            script, difference = fewer[: found.line + 1], found
            place = min(place, len(script) - 1)
        place -= 1
    return script, difference
