"""Names that PyTorch keeps for itself and packages import nevertheless: where they are here.

Begin with the two tables below: `finder.py` asks them. The other files are what they name, and know
nothing of the switch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .jit_switches import SWITCHES

__all__ = ["NAMES", "PATHS", "find"]

_SOME = "alias.private.internals"
_OF_LAYERS = "alias.private.functional"
_TRANSFORMS = "distributions.transforms.transform"
_ELEMENTWISE = "distributions.transforms.elementwise"

# PyTorch's name -> this library's.
NAMES = {
    "UntypedStorage": "alias.paths.storage.UntypedStorage",
    **{
        f"_C.{name}": f"{_SOME}.{name}"
        for name in (
            "Graph",
            "Node",
            "Value",
            "DispatchKey",
            "DispatchKeySet",
            "_ExcludeDispatchKeyGuard",
            "_get_privateuse1_backend_name",
            "_has_xpu",
        )
    },
    **{f"_C.{name}": f"alias.private.jit_switches.{name}" for name in SWITCHES},
    "_C._TensorBase": "tensor.Tensor",
    "_C._VariableFunctions": f"{_SOME}._VF",
    "_sample_dirichlet": f"{_SOME}._sample_dirichlet",
    "_standard_gamma": f"{_SOME}._standard_gamma",
    "_softmax_backward_data": f"{_SOME}._softmax_backward_data",
    "distributions.transforms._clipped_sigmoid": f"{_ELEMENTWISE}._clipped_sigmoid",
    "distributions.transforms._InverseTransform": f"{_TRANSFORMS}._InverseTransform",
    "jit.Error": f"{_SOME}.JitError",
    "jit._get_trace_graph": f"{_SOME}._get_trace_graph",
    "jit.optimized_execution": "alias.private.jit_switches.optimized_execution",
    "jit.TracerWarning": f"{_SOME}.TracerWarning",
    "jit._overload": "alias.paths._jit_internal._overload",
    "jit._overload_method": "alias.paths._jit_internal._overload",
    "jit._script_if_tracing": "alias.paths._jit_internal._overload",
    **{
        f"nn.functional.{name}": f"{_OF_LAYERS}.{name}"
        for name in (
            "_canonical_mask",
            "_get_softmax_dim",
            "_in_projection",
            "_in_projection_packed",
            "_list_with_default",
            "_mha_shape_check",
            "_none_or_dtype",
            "_verify_batch_size",
        )
    },
    **{f"nn.functional.{n}": f"nn.modules.utils.{n}" for n in ("_single", "_pair", "_triple")},
    **{f"{n}._VF": f"{_SOME}._VF" for n in ("nn.functional", "nn.modules.rnn")},
    **{f"{n}._Reduction": f"{_SOME}._Reduction" for n in ("nn.functional", "nn.modules.loss")},
    **{
        f"autograd.functional.{name}": f"{_SOME}.{name}"
        for name in (
            "_as_tuple",
            "_construct_standard_basis_for",
            "_grad_postprocess",
            "_tuple_postprocess",
        )
    },
    **{f"optim.lbfgs.{n}": f"{_SOME}.{n}" for n in ("_cubic_interpolate", "_strong_wolfe")},
    "nn.modules.conv._reverse_repeat_tuple": "nn.modules.utils._reverse_repeat_tuple",
    "nn.modules.module._addindent": f"{_SOME}._addindent",
    "nn.init._calculate_correct_fan": "nn.init._fan",
    "nn.init._calculate_fan_in_and_fan_out": "nn.init.calculate_fans",
    "nn.init._no_grad_fill_": "nn.init.constant_",
    "nn.init._no_grad_normal_": "nn.init.normal_",
    "nn.init._no_grad_trunc_normal_": "nn.init.trunc_normal_",
    "nn.init._no_grad_uniform_": "nn.init.uniform_",
    "nn.init._no_grad_zero_": "nn.init.zeros_",
    **{
        f"nn.modules.module.{name}": f"{_SOME}.{name}"
        for name in ("_global_buffer_registration_hooks", "_global_parameter_registration_hooks")
    },
    "nn.attention.flex_attention._DEFAULT_SPARSE_BLOCK_SIZE": "nn.attention.block_mask.BLOCK",
    "nn.utils.stateless._reparametrize_module": f"{_SOME}._reparametrize_module",
    "utils.data.functional_datapipe": f"{_SOME}.functional_datapipe",
    "utils.data.dataloader._collate_fn_t": f"{_SOME}._collate_fn_t",
    "utils.data.dataloader._worker_init_fn_t": f"{_SOME}._worker_init_fn_t",
}

# PyTorch's module -> this library's.
PATHS = {
    "__config__": "alias.paths.__config__",
    "_tensor": "tensor",
    "_C._functorch": "alias.private._functorch",
    "_functorch": "alias.private._functorch",
    "_functorch.config": "alias.paths.functorch_config",
    "_functorch.vmap": "alias.private._functorch",
    "_vmap_internals": "alias.private._functorch",
    "_custom_ops": "alias.paths.library",
    "_higher_order_ops": "alias.private._higher_order_ops",
    "_higher_order_ops.associative_scan": "alias.private._higher_order_ops.associative_scan",
    "_tensor_str": "alias.private._tensor_str",
    "_utils": "alias.private._utils",
    "_VF": "alias.private.variable_functions",
    "autograd.profiler_util": "alias.private.profiler_util",
    "distributed._composable.fsdp": "distributed.fsdp",
    "distributed._tensor": "distributed.tensor",
    "distributed.distributed_c10d": "alias.private.distributed_c10d",
    "distributed.tensor.placement_types": "distributed.tensor.placements",
    "jit.annotations": "alias.private.annotations",
    "onnx.symbolic_helper": "alias.paths.onnx",
    "nn._reduction": "alias.private._reduction",
    "nn.utils._named_member_accessor": "alias.private._named_member_accessor",
    "utils._contextlib": "alias.private._contextlib",
    "utils._foreach_utils": "alias.private._foreach_utils",
    "utils._python_dispatch": "alias.private._python_dispatch",
}


def find(path: str) -> Any:
    """What stands at a path of this library."""
    home, _, name = path.rpartition(".")
    return getattr(import_module(home), name)
