"""PyTorch's names that are not here, and the reason for each: what asking for one says.

A module ends its own `__getattr__` with `return refuse(__name__, name)`, or says
`explain(__name__)`. An import of a module that is absent, or `from` a package, says
the same. The compatibility page lists the table, and a test compares it with PyTorch's `__all__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

__all__ = [
    "ABSENT", "Absent", "Asked", "because", "explain", "listed", "missing", "reason_for", "refuse",
]  # fmt: skip

LIBRARY = __name__.partition(".")[0]
PAGE = "docs/torch-compatibility.md"

COMPILED = "Python runs as it is: use the function or module uncompiled"
DATAPIPES = "PyTorch develops them no further: write an IterableDataset or a Dataset"
DISTRIBUTED = "torch.distributed has what docs/distributed.md lists"
KERNEL = "a kernel of one of PyTorch's engines: use the function of torch.nn.functional or torch"
INTERNAL = "for PyTorch's own use"
OTHER_DEVICE = "the devices are 'cpu', 'cuda' and 'simulated'"
OLD_AUTOCAST = "deprecated in PyTorch: use torch.get_autocast_dtype, torch.is_autocast_enabled, " \
    "torch.set_autocast_dtype and torch.set_autocast_enabled with a device type"  # fmt: skip
OLD = "deprecated in PyTorch, or gone: use the name of today"
QUANTIZED = "there are no quantized tensors, and no dtypes of less than a byte"
SPARSE = "sparse tensors have the layout torch.sparse_coo: see torch.sparse_coo_tensor, to_sparse"
NESTED = "there are no nested tensors: pad them, and mask"
DISPATCHED = (
    "there is no `__torch_dispatch__`: classes and modes take calls by `__torch_function__`"
)
STORAGE = "the storages are what Tensor.untyped_storage() and Tensor.storage() give"
SYMBOLIC = "there are no symbolic shapes: sizes are Python's ints"
COMPLEX32 = "neither NumPy nor CuPy has a complex number of two halves: use complex64"
WITH_INDICES = "use the function with return_indices=True"
ALLOCATOR = "memory is CuPy's pool: see torch.cuda.memory_allocated, torch.cuda.empty_cache " \
    "and cupy.cuda.set_allocator"  # fmt: skip
MONITOR = "ask nvidia-smi, or the package nvidia-ml-py"
CUPY_STREAM = "torch.cuda.stream takes another library's stream as it is"
CUPY_RUNTIME = "CuPy has it: cupy.cuda.runtime, cupy.cuda.nccl, cupy.RawKernel"
ALWAYS_FILLED = "new memory is filled while use_deterministic_algorithms(True) is in force"
ITT = "use the package ittapi, whose tasks emit_itt emits"
BUDGET = "use memory.budget, which plans for a limit in bytes"
ABOVE = "what it has is in the package itself"
ENGINE = "an engine of PyTorch's that is not used here"
LDL = "use linalg.solve, or linalg.eigh"
ENDIAN = "a file without a mark is taken for little-endian"
MAPPED = "use torch.from_numpy(numpy.memmap(...)), or torch.load(..., mmap=True)"
METHOD = "use the method of Tensor of this name"
BUILT = "deprecated in PyTorch: ask torch.backends.mkl.is_available and its like"
ALL_OF_THEM = "use linalg.eigh, or lobpcg of cupyx.scipy.sparse.linalg or scipy.sparse.linalg"
MASKED = "there are no masked tensors: use torch.where, Tensor.masked_fill and their sums"
PACKAGE = "save a state_dict() by torch.save, and install the code as a Python package"
OF_EACH = "make a torch.Generator() for each thread or worker, and pass it by generator="
ADDRESS = "use Tensor.data_ptr()"
GRAD_DTYPE = "a gradient has its tensor's dtype: cast it where you use it, or in " \
    "Tensor.register_post_accumulate_grad_hook"  # fmt: skip
SCALED = "float8 has no products with scales: scale, then use matmul or grouped_mm"
CAPTURED = "use torch.cuda.graph, torch.cuda.CUDAGraph and torch.cuda.make_graphed_callables"
OF_CUDA = "use torch.cuda's function of this name"
SLAB = "page-locked memory is kept as docs/offload.md says"
PEERS = "ask cupy.cuda.runtime.deviceCanAccessPeer"
SEEDS = "use torch.cuda.manual_seed_all, torch.cuda.get_rng_state_all and set_rng_state_all"
WAITS = "a profile by nsys shows what waits for the device: see docs/profiling.md"
STATES = "use Generator.get_state, Generator.set_state and Generator.clone_state"
EXTENSIONS = "no C++ is built: call cupy.RawKernel in a torch.autograd.Function"
FORWARD_HOOKS = "use Module.register_forward_pre_hook and Module.register_forward_hook"
EINOPS = "use the package einops, or Tensor.reshape and Tensor.permute"
ATTENTION = "use nn.functional.scaled_dot_product_attention, with attn_mask= or is_causal="
FAKE = "there are no fake tensors: fx.passes.shape_prop.ShapeProp notes shapes and dtypes"
PACKAGED = "there is no torch.package: pickle a GraphModule, or save its state_dict()"
WRITER = "SummaryWriter writes the files of events itself"
AS_TORCH = "torch.library is there once cugrad.as_torch is imported: see docs/as-torch.md"
NAMED = "PyTorch has named tensors no more: say dims by their numbers, or use the package einops"
OF_LINALG = "gone from PyTorch, too, whose name raises: use linalg.solve, linalg.eigh (symeig), " \
    "linalg.eig, linalg.lstsq, linalg.matrix_rank"  # fmt: skip
FILES = "checksums are always written, and checked unless the file is mapped, copy-on-write"

# space -> {reason: names, or patterns of names}. A space is a module or a class, "" the library.
ABSENT: dict[str, dict[str, str]] = {
    "": {
        MAPPED: "from_file",
        METHOD: "get_device",
        OF_LINALG: "eig lstsq matrix_rank solve symeig",
        BUILT: "has_*",
        ALL_OF_THEM: "lobpcg",
        MASKED: "masked",
        PACKAGE: "package",
        OF_EACH: "thread_safe_generator",
        COMPILED: """
            _dynamo _inductor export ScriptModule ScriptFunction wait fork
            CompilationUnit onnx
        """,
        AS_TORCH: "library",
        DISTRIBUTED: "monitor is_distributed",
        KERNEL: """
            batch_norm_* convolution cudnn_* fbgemm_* miopen_* mkldnn_* native_* embedding_renorm_
            affine_grid_generator grid_sampler* hash_tensor
        """,
        INTERNAL: """
            AVG AggregationType AliasDb *Type Argument ArgumentSpec Benchmark* Block BufferDict
            CallStack Capsule Code CompleteArgumentSpec ConcreteModuleTypeBuilder DeepCopyMemoTable
            DeserializationStorageContext DisableTorchFunction* DispatchKey* ErrorReport
            ExcludeDispatchKeyGuard ExecutionPlan FatalError FileCheck FunctionSchema Future
            Gradient Graph GraphExecutorState IODescriptor JITException LiteScriptModule
            LockingLogger ModuleDict Node NoopLogger OperatorInfo ParameterDict PyTorchFile* SUM
            ScriptClass* ScriptDict* ScriptList* ScriptMethod ScriptModuleSerializer ScriptObject*
            SerializationStorageContext StaticModule StreamObjType Tag ThroughputBenchmark
            TracingState Type Use Value ao cpp import_ir_module* init_num_threads
            is_vulkan_available DeviceObjType merge_type_from_type_comment parse_* unify_type_list
            AcceleratorError torch_version contrib nativert numa
        """,
        OTHER_DEVICE: "mps mtia xpu",
        OLD_AUTOCAST: """
            get_autocast_[ix]*_dtype is_autocast_[!c]*_enabled set_autocast_[ix]*_dtype
            set_autocast_[!c]*_enabled
        """,
        QUANTIZED: """
            bit bits* choose_qparams_optimized dequantize empty_quantized fake_quantize_* float4_*
            fused_moving_avg_obs_fake_quant int[1-7] int_repr q_* qint* qscheme quantiz* quint*
            uint[1-7]
        """,
        SPARSE: """
            ccol_indices_copy col_indices_copy crow_indices_copy indices_copy row_indices_copy
            values_copy hsmm hspmm resize_as_sparse_ saddmm sspaddmm sparse_bs?_tensor
            sparse_cs?_tensor sparse_compressed_tensor
        """,
        NESTED: "nested",
        STORAGE: "storage",
        SYMBOLIC: "Sym* sym_* slice_inverse",
        COMPLEX32: "chalf complex32",
    },
    "Tensor": {  # no patterns: each name is attached to the class
        ADDRESS: "const_data_ptr",
        GRAD_DTYPE: "grad_dtype",
        DISTRIBUTED: "is_distributed",
        INTERNAL: "hash_tensor reinforce slice_inverse",
        OTHER_DEVICE: "ipu mtia xpu to_mkldnn",
        OLD: "eig index lstsq name prelu resize resize_as solve storage_type symeig",
        QUANTIZED: """
            dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
            q_scale q_zero_point qscheme
        """,
        SPARSE: """
            ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced
            resize_as_sparse_ row_indices smm sparse_dim sparse_resize_
            sparse_resize_and_clear_ sspaddmm to_sparse_bsc to_sparse_bsr
            to_sparse_csc to_sparse_csr values
        """,
        NESTED: "to_padded_tensor",
        COMPLEX32: "chalf",
        NAMED: "names rename rename_ align_to align_as refine_names has_names",
    },
    "nn": {
        QUANTIZED: "intrinsic qat quantizable quantized",
        INTERNAL: "backends common_types cpp factory_kwargs",
    },
    "nn.functional": {
        SCALED: "scaled_grouped_mm scaled_mm ScalingType SwizzleType",
        WITH_INDICES: "*max_pool[23]d_with_indices adaptive_max_pool1d_with_indices",
        KERNEL: "native_channel_shuffle",
        INTERNAL: "assert_int_or_pair boolean_dispatch *has*_torch_function* handle_torch_f*",
    },
    "nn.parallel": {DISTRIBUTED: "comm"},
    "nn.Module": {
        OTHER_DEVICE: "ipu mtia xpu",
        INTERNAL: "T_destination",
    },
    "cpu": {OLD: "amp"},
    "accelerator": {
        CAPTURED: "Graph graphs",
        SLAB: "empty_host_cache",
        OF_CUDA: "reset_accumulated_memory_stats",
        ABOVE: "memory",
    },
    "amp.autocast_mode": {INTERNAL: "autocast_decorator"},
    "autograd.gradcheck": {OLD: "get_analytical_jacobian get_numerical_jacobian*"},
    "backends.cuda": {
        ENGINE: """
            SDPAParams *reduction_math_sdp* can_use_* cu*Module cuFFTPlanCache* cufft_plan_cache
            cublas*_workspace_size blas_workspace_size is_ck_sdpa_available
            preferred_rocm_fa_library
        """,
    },
    "backends.cudnn": {ENGINE: "rnn"},
    "backends.mkl": {ENGINE: "verbose"},
    "backends.mps": {OTHER_DEVICE: "get_core_count get_name is_macos*"},
    "compiler": {
        COMPILED: """
            config get_default_backend keep_*_unsafe load_* nested_compile_region
            save_cache_artifacts set_default_backend set_enable_guard_collectives skip_*_unsafe
            wrap_numpy
        """,
    },
    "cuda.streams": {CUPY_STREAM: "ExternalStream"},
    "jit": {
        COMPILED: """
            CompilationUnit Error annotations export_opnames frontend
            generate_bytecode mobile set_fusion_strategy strict_fusion supported_ops
            unsupported_tensor_ops
        """,
        QUANTIZED: "quantized",
    },
    "profiler.itt": {ITT: "is_available mark range range_pop range_push"},
    "nn.modules": {ABOVE: "linear_cross_entropy"},
    "signal.windows": {ABOVE: "windows"},
    "testing": {INTERNAL: "FileCheck"},
    "utils.benchmark": {
        INTERNAL: """
            CallgrindStats Colorize CopyIfCallgrind Function* Fuzz* Language ParameterAlias
            examples op_fuzzers ordered_unique set_torch_threads unit_to_english utils
        """,
    },
    "utils.hooks": {INTERNAL: "BackwardHook"},
    "utils.tensorboard": {INTERNAL: "RecordWriter summary", WRITER: "FileWriter"},
    "utils.tensorboard.writer": {WRITER: "FileWriter"},
    "overrides": {DISPATCHED: "enable_reentrant_dispatch"},
    "cuda": {
        PEERS: "can_device_access_peer",
        DISTRIBUTED: "comm",
        SEEDS: "default_generators",
        WAITS: "[gs]et_sync_debug_mode",
        ABOVE: "random",
        ALLOCATOR: """
            CUDAPluggableAllocator MemPool caching_allocator_* change_current_allocator
            get_allocator_backend use_mem_pool host_memory_stats*
            reset_*_host_memory_stats
        """,
        CUPY_STREAM: "ExternalStream get_stream_from_external",
        CUPY_RUNTIME: """
            CudaError check_error cudaStatus cudart current_blas_handle current_solver_handle
            DeferredCudaCallError jiterator nccl GreenContext green_contexts gds
        """,
        MONITOR: """
            clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature
            utilization
        """,
        INTERNAL: """
            get_arch_list get_gencode_flags has_half has_magma is_tf32_supported sparse
            tunable
        """,
        STORAGE: "*Storage",
    },
    "cuda.memory": {
        ALLOCATOR: """
            CUDAPluggableAllocator MemPool caching_allocator_* change_current_allocator
            get_allocator_backend use_mem_pool host_memory_stats*
            reset_*_host_memory_stats
        """,
        MONITOR: "list_gpu_processes",
    },
    "cuda.Event": {DISTRIBUTED: "*ipc_handle"},
    "Generator": {STATES: "*_offset graphsafe_*"},
    "dtype": {INTERNAL: "abbr"},
    "backends": {
        ENGINE: """
            cusparselt kleidiai miopen python_native quantized xeon xnnpack
        """,
    },
    "utils": {
        ALWAYS_FILLED: "deterministic",
        OLD: "backcompat",
        EXTENSIONS: "cpp_*",
        FORWARD_HOOKS: "module_tracker",
        INTERNAL: """
            ThroughputBenchmark backend_registration generate_methods_for_privateuse1_backend
            get_cpp_backtrace bundled_inputs debug_log file_baton hipify jit mkldnn mobile_optimizer
            model_dump model_zoo serialization show_pickle viz rename_privateuse1_backend set_module
            throughput_benchmark
        """,
    },
    "utils.data": {
        DATAPIPES: """
            DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation datapipes
            functional_datapipe graph graph_settings guaranteed_datapipes_determinism
            non_deterministic runtime_validation*
        """,
        INTERNAL: "backward_compatibility",
    },
    "autograd": {
        INTERNAL: "NestedIOFunction enforce_grad_layout_policy profiler_legacy profiler_util",
    },
    "autograd.function": {INTERNAL: "NestedIOFunction"},
    "autograd.grad_mode": {INTERNAL: "enforce_grad_layout_policy"},
    "autograd.graph": {
        BUDGET: "region_activation_memory_budget",
        INTERNAL: "set_override_stale_capture_stream set_warn_on_accumulate_grad_stream_mismatch",
    },
    "autograd.profiler": {INTERNAL: "EnforceUnique KinetoStepTracker MemRecordsAcc"},
    "profiler": {INTERNAL: "ExecutionTraceObserver profiler python_tracer"},
    "func": {COMPILED: "debug_unwrap functionalize", EINOPS: "rearrange"},
    "fx": {COMPILED: "annotate config experimental operator_schemas tensor_type traceback"},
    "fx.graph_module": {PACKAGED: "reduce_package_graph_module"},
    "fx.proxy": {FAKE: "MetaProxy"},
    "fx.passes": {
        COMPILED: """
            annotate_getitem_nodes backends dialect fake_tensor_prop graph_drawer
            graph_manipulation graph_transform_observer infra net_min_base operator_support
            param_fetch pass_manager regional_inductor* reinplace runtime_assert split_module
            split_utils splitter_base tests tools_common
        """,
    },
    "fx.passes.utils": {
        COMPILED: """
            HolderModule common compare_graphs fuser_utils lift_subgraph_as_module
            matcher_with_name_node_map_utils source_matcher_utils
        """,
    },
    "linalg": {LDL: "ldl_*"},
    "serialization": {
        ENDIAN: "LoadEndianness *_default_load_endianness",
        FILES: "*_crc32_options *_default_mmap_options skip_data",
        STORAGE: """
            location_tag normalize_storage_type register_package storage_to_tensor_type
            StorageType
        """,
        INTERNAL: "SourceChangeWarning check_module_version_* mkdtemp validate_*_device",
    },
    "random": {OF_EACH: "thread_safe_generator"},
    "sparse": {
        SPARSE: """
            SparseSemiStructuredTensor* as_sparse_gradcheck check_sparse_tensor_invariants
            sampled_addmm semi_structured solve spsolve to_sparse_semi_structured
        """,
    },
    "nn.attention": {
        ATTENTION: "bias experimental varlen",
        ENGINE: "WARN_FOR_UNFUSED_KERNELS *_flash_attention_impl*",
    },
}


def reason_for(space: str, name: str) -> str | None:
    """Why PyTorch's `space.name` is not here; None for a name that the table does not have."""
    for reason, names in ABSENT.get(space, {}).items():
        for pattern in names.split():
            if pattern == name or fnmatchcase(name, pattern):
                return reason
    return None


def missing(module: str, name: str) -> AttributeError:
    """The error for `name`, asked of the module of this name: why it is not here, if that is known.

    >>> missing("cugrad", "get_device").args[0]
    "module 'cugrad' has no attribute 'get_device': use the method of Tensor of this name (docs...)"
    """
    return AttributeError(f"module {module!r} has no attribute {name!r}{because(module, name)}")


class Asked:
    """What answers for a name that is asked of a module and absent, instead of the error."""

    instead: Callable[[str, str], Any] | None = None  # set while cugrad goes by PyTorch's name


def refuse(module: str, name: str) -> Any:
    """Raises `missing`, or gives what stands in for the name."""
    if Asked.instead is None:
        raise missing(module, name)
    return Asked.instead(module, name)


def because(module: str, name: str) -> str:
    """What an error adds of a name that the table knows: `: the reason (the page)`; else ""."""
    reason = reason_for(module.partition(".")[2], name)
    return "" if reason is None else f": {reason} ({PAGE})"


class Absent:
    """Stands in a class for a method that is not here: reading it raises AttributeError."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    def __get__(self, instance: object, owner: type) -> Any:
        what = f"type object {owner.__name__!r}"
        if instance is not None:
            what = f"{owner.__name__!r} object"
        raise AttributeError(f"{what} has no attribute {self.name!r}: {self.reason} ({PAGE})")


# Modules that a user may look for by name; others are where the library keeps its code.
PUBLIC = frozenset(
    """
    accelerator amp array_api as_torch autograd autograd.anomaly_mode autograd.forward_ad
    autograd.function autograd.functional autograd.grad_mode autograd.gradcheck autograd.graph
    autograd.profiler backends backends.cpu backends.cuda backends.cudnn backends.mha backends.mkl
    backends.mkldnn backends.mps backends.nnpack backends.openmp backends.opt_einsum
    backends.simulated compiler cpu cuda cuda.amp cuda.graphs cuda.memory cuda.nvtx cuda.profiler
    cuda.sanitizer cuda.streams distributed distributed.algorithms
    distributed.algorithms.ddp_comm_hooks distributed.algorithms.ddp_comm_hooks.default_hooks
    distributed.algorithms.join distributed.autograd distributed.checkpoint
    distributed.checkpoint.state_dict distributed.device_mesh distributed.fsdp distributed.nn
    distributed.nn.functional distributed.optim distributed.rpc distributed.run distributed.tensor
    distributions errors fft func functional futures fx fx.immutable_collections hub jit linalg
    memory models multiprocessing nn nn.attention nn.attention.flex_attention nn.functional nn.grad
    nn.init nn.modules nn.parallel nn.parameter nn.stateless nn.utils nn.utils.clip_grad
    nn.utils.convert_parameters nn.utils.fusion nn.utils.init nn.utils.memory_format
    nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn ops optim
    optim.lr_scheduler optim.swa_utils overrides profiler profiler.itt quasirandom random
    return_types serialization serialization.safetensors signal signal.windows sparse special
    testing types utils utils.benchmark utils.checkpoint utils.collect_env utils.data
    utils.data.dataloader utils.data.dataset utils.data.distributed utils.data.sampler utils.dlpack
    utils.flop_counter utils.hooks utils.tensorboard utils.weak version
    """.split()  # noqa: SIM905
)


def listed(module: str, *more: str) -> list[str]:
    """What `dir` says of a module: its names for users, and `more`, which come when asked for."""
    space = module.partition(".")[2]
    own = vars(sys.modules[module])
    names = {*more, *own.get("__all__", ())}
    for name, value in own.items():
        if isinstance(value, ModuleType):
            is_ours = value.__name__.startswith(LIBRARY)
            shown = is_ours and f"{space}.{name}".lstrip(".") in PUBLIC
        else:
            home = getattr(value, "__module__", LIBRARY)
            ours = isinstance(home, str) and home.startswith((LIBRARY, "builtins"))
            shown = ours and home != __name__ and "__all__" not in own
        if name.startswith("__") or (shown and name[0] != "_" and name != "annotations"):
            names.add(name)
    return sorted(names)


def explain(module: str) -> None:
    """Gives a module the `__getattr__` that is `refuse`, and the `__dir__` that is `listed`.

    `from module import name` asks the Finder below only where the module has a path.
    """

    def __getattr__(name: str) -> Any:
        return refuse(module, name)

    names = vars(sys.modules[module])
    names.setdefault("__getattr__", __getattr__)
    names.setdefault("__dir__", lambda: listed(module))
    names.setdefault("__path__", [])


class Finder:
    """Python's last resort for an import: of what is absent it says why.

    `from package import name` comes here too, after `package.__getattr__` has refused.
    """

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> None:
        """None for a name that the table does not have; else ModuleNotFoundError."""
        library, _, inside = fullname.partition(".")
        if library != LIBRARY or not inside:
            return
        space, _, name = inside.rpartition(".")
        if reason_for(space, name) is not None:
            home = f"{library}.{space}".rstrip(".")
            # without name=, or `from package import name` would swallow it and say less
            raise ModuleNotFoundError(f"No module named {fullname!r}{because(home, name)}")


if not any(isinstance(f, Finder) for f in sys.meta_path):
    sys.meta_path.append(Finder())
