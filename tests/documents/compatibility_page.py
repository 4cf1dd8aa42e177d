"""Writes the table of names in docs/torch-compatibility.md: what of PyTorch's autograd is here.

`python -m tests.documents.compatibility_page --write` after names or signatures have changed; a
test fails until then. `--record`, where PyTorch is installed, writes down its names and signatures
anew.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, NamedTuple

from cugrad.functions import engines, precisions, switches
from cugrad.runtime.absent import ABSENT, INTERNAL, Absent, reason_for
from tests.support import ROOT

PAGE = ROOT / "docs" / "torch-compatibility.md"
RECORD = Path(__file__).resolve().parent / "torch_autograd_names.txt"

# Where names are looked for: a module, or a class in one, and which names; none for its `__all__`.
SPACES: dict[str, tuple[str, ...]] = {
    "autograd": (
        "backward", "grad", "Function", "NestedIOFunction", "Variable", "variable", "SavedTensor",
        "forward_ad", "functional", "function", "graph", "gradcheck", "gradgradcheck",
        "grad_mode", "anomaly_mode", "profiler", "detect_anomaly", "set_detect_anomaly",
        "enable_grad", "no_grad", "set_grad_enabled", "inference_mode",
        "set_multithreading_enabled", "kineto_available",
    ),
    "autograd.Function": (
        "apply", "forward", "setup_context", "backward", "vjp", "jvp", "vmap",
        "generate_vmap_rule",
    ),
    "autograd.function": (
        "FunctionCtx", "BackwardCFunction", "FunctionMeta", "InplaceFunction",
        "NestedIOFunction", "once_differentiable",
    ),
    "autograd.function.FunctionCtx": (
        "save_for_backward", "save_for_forward", "mark_dirty", "mark_non_differentiable",
        "mark_shared_storage", "set_materialize_grads",
    ),
    "autograd.forward_ad": (
        "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
        "UnpackedDualTensor",
    ),
    "autograd.functional": ("jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"),
    "autograd.gradcheck": ("gradcheck", "gradgradcheck", "GradcheckError", "get_numerical_jacobian",
                           "get_analytical_jacobian", "get_numerical_jacobian_wrt_specific_input"),
    "autograd.graph": (
        "saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks",
        "register_multi_grad_hook", "allow_mutation_on_saved_tensors", "Node", "GradientEdge",
        "get_gradient_edge", "increment_version", "set_warn_on_accumulate_grad_stream_mismatch",
    ),
    "autograd.graph.Node": (
        "name", "next_functions", "metadata", "register_hook", "register_prehook",
        "_register_hook_dict",
    ),
    "autograd.profiler": (
        "profile", "emit_nvtx", "emit_itt", "load_nvprof", "parse_nvprof_trace",
        "record_function", "EventList", "FunctionEvent",
    ),
    "profiler": (
        "profile", "schedule", "tensorboard_trace_handler", "ProfilerAction", "ProfilerActivity",
        "record_function", "kineto_available", "supported_activities", "ExecutionTraceObserver",
    ),
    "profiler.profile": (
        "start", "stop", "step", "events", "key_averages", "export_chrome_trace", "export_stacks",
        "export_memory_timeline", "add_metadata", "add_metadata_json", "preset_metadata_json",
        "toggle_collection_dynamic", "get_trace_id", "set_custom_trace_id_callback",
        "prepare_trace", "start_trace", "stop_trace",
    ),
    "func": (
        "grad", "grad_and_value", "vjp", "jvp", "linearize", "jacrev", "jacfwd", "hessian",
        "vmap", "functional_call", "stack_module_state", "functionalize",
        "replace_all_batch_norm_modules_", "debug_unwrap",
    ),
    "utils.checkpoint": (
        "checkpoint", "checkpoint_sequential", "CheckpointError", "CheckpointFunction",
        "check_backward_validity", "detach_variable", "get_device_states", "set_device_states",
        "noop_context_fn", "set_checkpoint_early_stop", "DefaultDeviceType",
        "set_checkpoint_debug_enabled", "CheckpointPolicy", "SelectiveCheckpointContext",
        "create_selective_checkpoint_contexts", "SAC_IGNORED_OPS", "GraphExecGroup",
    ),
    "amp": ("autocast", "GradScaler", "custom_fwd", "custom_bwd", "is_autocast_available"),
    "amp.GradScaler": (
        "scale", "unscale_", "step", "update", "get_scale", "get_growth_factor",
        "set_growth_factor", "get_backoff_factor", "set_backoff_factor", "get_growth_interval",
        "set_growth_interval", "is_enabled", "state_dict", "load_state_dict",
    ),
    "Tensor": (
        "backward", "grad", "grad_fn", "requires_grad", "requires_grad_", "is_leaf", "detach",
        "detach_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad",
        "retains_grad", "output_nr", "data", "is_inference", "_version", "_base", "_is_view",
        "grad_dtype", "name", "volatile", "reinforce",
    ),
    "": (
        "no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled", "inference_mode",
        "is_inference_mode_enabled", "is_inference", "set_anomaly_enabled",
        "is_anomaly_enabled", "is_anomaly_check_nan_enabled", "vmap", "save", "load",
    ),
    "serialization": (
        "save", "load", "add_safe_globals", "clear_safe_globals", "get_safe_globals",
        "safe_globals", "get_unsafe_globals_in_checkpoint", "register_package", "skip_data",
        "set_default_mmap_options", "get_default_mmap_options", "set_crc32_options",
        "get_crc32_options", "set_default_load_endianness", "get_default_load_endianness",
        "location_tag", "default_restore_location",
    ),
    "nn.Module": (
        "register_forward_pre_hook", "register_forward_hook", "register_full_backward_pre_hook",
        "register_full_backward_hook", "register_backward_hook", "register_state_dict_pre_hook",
        "register_state_dict_post_hook", "register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook", "get_extra_state", "set_extra_state", "state_dict",
        "load_state_dict",
    ),
    "nn.modules.module": (
        "register_module_parameter_registration_hook", "register_module_buffer_registration_hook",
        "register_module_module_registration_hook", "register_module_forward_pre_hook",
        "register_module_forward_hook", "register_module_full_backward_pre_hook",
        "register_module_full_backward_hook", "register_module_backward_hook",
    ),
    "nn.parallel": (
        "DataParallel", "data_parallel", "replicate", "scatter", "gather", "parallel_apply",
        "DistributedDataParallel",
    ),
}  # fmt: skip


class Note(NamedTuple):
    """What a difference is, and why, in the words of a person."""

    state: str  # differs, more, or absent
    text: str


JACOBIANS = Note("absent", "Deprecated, and for gradcheck's own use.")
PROFILER = Note("absent", "Not here yet; `emit_nvtx` and `cugrad.profiler.MemoryTimeline` are.")
DISTRIBUTED = Note(
    "differs", "Refuses `mixed_precision`, `device_mesh` and what delays reductions. In a "
    "static graph buckets keep the order of the module.",
)  # fmt: skip
NO_STORAGE = Note("absent", "Storages are no objects that one could register for a device.")
PRIVATE = Note("absent", "Private, though PyTorch's documents print it in a list of names.")

NOTES: dict[str, Note] = {
    "autograd.NestedIOFunction": Note("absent", "Legacy, and without `forward` in PyTorch too."),
    "autograd.function.NestedIOFunction": Note("absent", "The same."),
    "autograd.set_multithreading_enabled": Note(
        "differs", "Backward runs in the thread that calls it in both cases."),
    "autograd.kineto_available": Note("absent", "PyTorch's profiler library is not used."),
    "autograd.Function.vmap": Note(
        "differs", "`in_dims` names the dimension that `torch.vmap` was given for its own inputs, "
        "and 0 for what was computed inside."),
    "autograd.Function.generate_vmap_rule": Note(
        "more", "Also of Functions that change an input in place, or take arguments by name."),
    "autograd.Function.apply": Note(
        "differs", "The node of a Function under several transforms is one, not one for each: "
        "`setup_context` runs once."),
    "autograd.Function.jvp": Note(
        "more", "Under `jvp` of `jvp` the outer tangent goes through `ctx.saved_tensors`."),
    "autograd.gradcheck.get_numerical_jacobian": JACOBIANS,
    "autograd.gradcheck.get_analytical_jacobian": JACOBIANS,
    "autograd.gradcheck.get_numerical_jacobian_wrt_specific_input": JACOBIANS,
    "autograd.graph.saved_tensors_hooks": Note(
        "more", "`compose=True` hands what the hook returns on to the pair of hooks around it."),
    "autograd.graph.GradientEdge": Note(
        "differs", "Nodes need no token to stay alive; it says what the gradient looks like."),
    "autograd.graph.Node._register_hook_dict": PRIVATE,
    "autograd.graph.set_warn_on_accumulate_grad_stream_mismatch": Note(
        "absent", "Gradients are added on the stream of the caller, without a warning."),
    "profiler.ExecutionTraceObserver": Note("absent", "For the replay tools of PyTorch."),
    "profiler.profile.export_memory_timeline": Note(
        "absent", "`profiler.MemoryTimeline` has the picture, as HTML, PNG and JSON."),
    "func.functionalize": Note("absent", "For PyTorch's compilers."),
    "func.debug_unwrap": Note("absent", "There are no wrappers to look into."),
    "Tensor.grad_dtype": Note("absent", "`.grad` has the dtype of the tensor."),
    "Tensor.reinforce": Note("absent", "Removed from PyTorch: it raises."),
    "Tensor.name": Note("absent", "Of the deprecated Variable; always None."),
    "serialization.register_package": NO_STORAGE,
    "serialization.location_tag": NO_STORAGE,
    "serialization.skip_data": Note("absent", "A file without its elements is of no use here."),
    "serialization.set_default_mmap_options": Note(
        "absent", "`load(mmap=True)` maps copy-on-write, PyTorch's default."),
    "serialization.get_default_mmap_options": Note("absent", "The same."),
    "serialization.set_crc32_options": Note(
        "absent", "Checksums are always written, and checked unless the file is mapped."),
    "serialization.get_crc32_options": Note("absent", "The same."),
    "serialization.set_default_load_endianness": Note(
        "absent", "A file without a mark is taken for little-endian."),
    "serialization.get_default_load_endianness": Note("absent", "The same."),
    "save": Note(
        "differs", "A path gets its new file when it is complete. PyTorch's zip format, and "
        "Python's pickle, alone."),
    "load": Note(
        "differs", "Safetensors: `load_file`, `save_file`, `serialization.safetensors`. "
        "Files of before PyTorch 1.6 only with `weights_only`. "
        "With `weights_only` it refuses compressed records, tensors that reach beyond their "
        "storage, pickles that copy, hash or compare more than they hold, and keys made to share a "
        "hash. What a damaged file raises is an UnpicklingError, a RuntimeError or an EOFError, "
        "also for an unknown byte order."),
    "amp.autocast": Note(
        "differs", "Also for `simulated`, by CUDA's lists. A weight that changes within a region "
        "is cast again. What cugrad has no op for (fused RNN cells) is on no list."),
    "utils.checkpoint.checkpoint": Note(
        "more", "Random numbers are those of forward from whatever generator they come; tensors "
        "among the keywords count. `determinism_check` also knows `ops` and `bits`, and an error "
        "names the op. Backward may ask for a tensor twice."),
    "utils.checkpoint.create_selective_checkpoint_contexts": Note(
        "differs", "Ops are named as docs/ops.md has them, or by their functions: there is no "
        "`torch.ops.aten`. CPU_OFFLOAD moves, by the copies of `memory.offload`, of the one given "
        "as `offload=`; PyTorch's eager mode computes again. Backward may run several times."),
    "utils.checkpoint.SAC_IGNORED_OPS": Note("differs", "Names of ops, not PyTorch's overloads."),
    "utils.checkpoint.get_device_states": Note(
        "differs", "Each device once. The checkpoints here do without it."),
    "utils.checkpoint.GraphExecGroup": Note(
        "more", "Passes that the function itself makes are no part of the group. PyTorch takes "
        "them for some of it, and fails."),
    "nn.parallel.DataParallel": Note(
        "more", "`device_ids` may be any devices. Its threads carry saved-tensor hooks, observers "
        "and inference mode, not grad mode alone."),
    "nn.parallel.DistributedDataParallel": DISTRIBUTED,
}  # fmt: skip
NOTES["serialization.save"] = NOTES["serialization.load"] = Note("differs", "See `save`, `load`.")
ABSENT_FROM = {"autograd.profiler": PROFILER}


PLAIN = (object.__init__, object.__new__)


def full(space: str, name: str) -> str:
    return f"{space}.{name}" if space else name


def found(library: str, space: str, name: str) -> Any:
    """The object of a name, or None; a name may be a module's, or of a class in a module."""
    try:  # a module first: torch.autograd.gradcheck is a function too
        home: Any = importlib.import_module(full(library, space) if space else library)
    except ImportError:
        home = importlib.import_module(library)
        for part in space.split("."):
            home = getattr(home, part, None)
        if home is None:
            return None
    if inspect.isclass(home) or not inspect.ismodule(home):
        found = inspect.getattr_static(home, name, None)
        return None if isinstance(found, Absent) else found
    return getattr(home, name, None)


def signature(thing: Any) -> str:
    """How something is called: `(x, y=None)`; a word for what is not, or does not say how."""
    if inspect.ismodule(thing):
        return "module"
    thing = getattr(thing, "__func__", thing)
    if inspect.isclass(thing):
        if issubclass(thing, BaseException):
            return "error"
        made = [f for f in (thing.__init__, thing.__new__) if f not in PLAIN]
        texts = [signature(f) for f in made] or ["()"]
        return max(texts, key=lambda text: (len(parts_of(text) or ()), "*" not in text))
    if not callable(thing):
        return "value"
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return "callable"
    if parameters and parameters[0].name in ("self", "cls", "_cls"):
        parameters = parameters[1:]
    return "(" + ", ".join(map(text_of, parameters)) + ")"


def text_of(p: inspect.Parameter) -> str:
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    if p.default is p.empty:
        return stars + p.name
    plain = isinstance(p.default, (bool, int, float, str, type(None), tuple))
    default = p.default if plain else ...
    return f"{stars}{p.name}={default!r}".replace("Ellipsis", "...")


def recorded() -> dict[str, str]:
    """PyTorch's names and how each is called, as they were written down."""
    lines = [line for line in RECORD.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("\t") for line in lines)


def record() -> str:
    """What PyTorch says today, to be written down."""
    lines = ["# PyTorch 2.13's names, by python -m tests.documents.compatibility_page --record"]
    for space, names in SPACES.items():
        for name in names:
            thing = found("torch", space, name)
            if thing is not None or name == "name":
                lines.append(f"{full(space, name)}\t{signature(thing)}")
    return "\n".join(lines) + "\n"


def parts_of(text: str) -> list[str] | None:
    """The parameters of a signature as it is written, or None where it is none."""
    if not text.startswith("("):
        return None
    found, depth, piece = [], 0, ""
    for letter in text[1:-1] + ",":
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            if piece.strip():
                found.append(piece.strip())
            piece = ""
        else:
            piece += letter
    return found


def difference(theirs: str, ours: str) -> str:
    """How two signatures differ, in words; empty where one can be called as the other."""
    wanted, given = parts_of(theirs), parts_of(ours)
    if wanted is None or given is None or any(p.startswith("*args") for p in wanted + given):
        return ""
    names = [
        {p.partition("=")[0].lstrip("*"): p for p in side if p != "*"} for side in (wanted, given)
    ]
    positional = [list(side) for side in names]
    said = []
    gone = [n for n in positional[0] if n not in names[1] and not n.startswith("_")]
    new = [n for n in positional[1] if n not in names[0] and not n.startswith("_")]
    both = [n for n in positional[0] if n in names[1]]
    other = [n for n in both if names[0][n] != names[1][n]
             and "=..." not in names[0][n] + names[1][n]]  # fmt: skip
    if gone and len(gone) == len(new) and all("=" not in names[0][n] for n in gone):
        said.append("named otherwise: " + ", ".join(f"`{a}` is `{b}`" for a, b in zip(gone, new)))
    else:
        said += ["without " + ", ".join(f"`{n}`" for n in gone)] * bool(gone)
        said += ["also " + ", ".join(f"`{n}`" for n in new)] * bool(new)
    said += ["by default " + ", ".join(f"`{names[1][n]}`" for n in other)] * bool(other)
    return "; ".join(said)


def row(name: str, theirs: str, ours: Any) -> tuple[str, str, str]:
    """One line of the table."""
    note = NOTES.get(name)
    if ours is None:
        space, _, last = name.rpartition(".")
        note = note or ABSENT_FROM.get(space)
        if note is None and (reason := reason_for(space, last)) is not None:
            note = Note("absent", f"{reason[0].upper()}{reason[1:]}.")
        if note is None:
            raise SystemExit(f"{name} is not here: say why in NOTES of {__file__}")
        return name, "absent", note.text
    calls = difference(theirs, signature(ours))
    if note is None and not calls:
        return name, "same", ""
    text = " ".join([part for part in (
        "" if not calls else calls[0].upper() + calls[1:] + ".", "" if note is None else note.text
    ) if part])  # fmt: skip
    state = note.state if note else "more" if calls.startswith("also") else "differs"
    return name, state, text


def rows() -> list[tuple[str, str, str]]:
    """All lines, by space; names of which PyTorch's build says nothing are left out."""
    known = recorded()
    return [
        row(full(space, name), known[full(space, name)], found("cugrad", space, name))
        for space, names in SPACES.items()
        for name in names
        if full(space, name) in known
    ]


def table() -> str:
    """The generated part of the page."""
    listed = rows()
    counts = {s: sum(r[1] == s for r in listed) for s in ("same", "more", "differs", "absent")}
    lines = [
        f"{len(listed)} names: " + ", ".join(f"{n} {state}" for state, n in counts.items()) + ".",
        "",
        "| name | state | difference and reason |",
        "|---|---|---|",
        *[f"| `{name}` | {state} | {text} |".replace("  |", " |") for name, state, text in listed],
    ]
    return "\n".join(lines)


def absent_table() -> str:
    """What cugrad.runtime.absent says of names that are for users, as a table."""
    lines = ["| where | names | reason |", "|---|---|---|"]
    for space, reasons in ABSENT.items():
        for reason, names in reasons.items():
            if reason == INTERNAL:
                continue
            listed = ", ".join(f"`{name}`" for name in names.split())
            lines.append(f"| `{full('torch', space).rstrip('.')}` | {listed} | {reason} |")
    return "\n".join(lines)


def switches_table() -> str:
    """Each switch, what it is at first, and what it does."""
    lines = ["| switch | at first | what it does |", "|---|---|---|"]
    holders: list[tuple[str, type]] = [("backends.cuda.matmul", switches.Matmul)]
    holders += [(f"backends.{kind.__name__}", kind) for kind in (switches.cudnn, *engines.ENGINES)]
    holders.insert(0, ("backends", engines.Every))
    for home, holder in holders:
        for name, switch in vars(holder).items():
            if isinstance(switch, precisions.Precision):
                text = switch.__doc__
                first = switch.fp32_precision
                lines.append(f"| `{home}.{name}.fp32_precision` | `{first}` | {text} |")
            if isinstance(switch, switches.BackendFlag):
                lines.append(f"| `{home}.{name}` | `{switch.value}` | {switch.__doc__} |")
    for name in switches.__all__:
        if name.startswith(("set_", "use_")):
            text = " ".join((inspect.getdoc(getattr(switches, name)) or "").split())
            lines.append(f"| `{name}` | | {text} |")
    return "\n".join(lines)


PARTS = {"names": table, "absent": absent_table, "switches": switches_table}


def page() -> str:
    """The page as it should be: what is between the marks of each part is replaced."""
    written = PAGE.read_text()
    for part, write in PARTS.items():
        begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
        before, _, rest = written.partition(begin)
        _, _, after = rest.partition(end)
        written = f"{before}{begin}\n\n{write()}\n\n{end}{after}"
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--record", action="store_true", help="write down PyTorch's names")
    options = parser.parse_args()
    if options.record:
        RECORD.write_text(record())
    if options.write:
        PAGE.write_text(page())
    if not (options.write or options.record):
        sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main()
