"""Why some operators of PyTorch's database are not here, and where ours differ on purpose."""

from __future__ import annotations

from typing import NamedTuple

# Name or pattern -> reason.
NOT_HERE: dict[str, str] = {
    "_[a-z]*": "internal to PyTorch",
    "__rdiv__": "Python 2's",
    "chalf": "there is no complex32",
    "grid_sampler_*d": "internal to PyTorch: nn.functional.grid_sample is here",
    "hash_tensor": "internal to PyTorch's compiler",
    "jiterator_*": "CUDA source given by the user: cupy.ElementwiseKernel does it",
    "linalg.ldl_*": "indefinite factorisations are not here yet",
    "masked.*": "torch.masked is a prototype",
    "max_pool2d_with_indices_backward": "internal to PyTorch",
    "native_*": "internal to PyTorch",
    "slice": "internal to PyTorch: x[a:b:c] is here",
    "sparse.*": "samples of it are of layouts that are not here",
    "to_sparse": "samples of it are of layouts that are not here",
    "torch.*": "internal to PyTorch",
}


class Difference(NamedTuple):
    """A fault that is none: the operator, words of the fault, why, and in which dtype alone."""

    op: str
    says: str
    why: str
    dtype: str = ""


NUMBER_FIRST = "a number may be the first operand, or both"
TIES = "which of equal elements an index names is left open"
OUT_DTYPE = "out= takes any dtype that the result can be cast to, as arithmetic does"
OVERLAP = "an out= that overlaps an input is written after the input was read"

DIFFERENT: list[Difference] = [
    *[Difference(op, "must be Tensor, not int", NUMBER_FIRST) for op in (
        "atan2", "fmax", "fmin", "logaddexp", "heaviside", "hypot", "igamma*", "lcm", "gcd",
        "ldexp", "logical_*", "maximum", "minimum", "nextafter", "special.*", "xlogy", "polar",
        "float_power")],
    *[Difference(op, "invalid combination of arguments - got (int", NUMBER_FIRST) for op in (
        "clamp_max", "clamp_min", "copysign", "eq", "fmod", "ge", "gt", "le", "lt", "ne", "rsub",
        "remainder", "bitwise_*", "floor_divide", "float_power")],
    *[Difference(op, "descriptor", "operators of Tensor take what the functions take") for op in (
        "__radd__", "__rmul__", "__rand__", "__ror__", "__rxor__")],
    *[Difference(op, "output 1", TIES) for op in (
        "sort", "topk", "kthvalue", "median", "nanmedian", "mode")],
    *[Difference(op, "is a view", "pieces whose changes autograd follows") for op in (
        "unsafe_chunk", "unsafe_split")],
    Difference("argsort", "values, such as", TIES),
    *[Difference(op, "out tensor to have dtype", OUT_DTYPE) for op in ("aminmax", "gather")],
    Difference("multinomial", "expects Long tensor out", OUT_DTYPE),
    Difference("multinomial", "categories cannot exceed 2^24", "it draws of any number of them"),
    *[Difference(op, "unsupported operation:", OVERLAP) for op in (
        "masked_select", "gather", "index_select", "take", "cat", "bernoulli", "kthvalue")],
    Difference("cat", "not resizable", OVERLAP),
    Difference("arange", "step must be nonzero", "the step is not cast to the dtype of out= first"),
    Difference("addbmm", "values, such as", "rounded once, after the sum", "bfloat16"),
    Difference("matrix_exp", "values, such as", "nearer to the exact values, and no nan in half"),
    Difference("cholesky_inverse", "jvp", "PyTorch's disagrees with its own finite differences"),
    Difference("as_strided", "values, such as", "the harness copies a view, and so its storage"),
    Difference("as_strided", "out of bounds", "the harness copies a view, and so its storage"),
    Difference("as_strided_scatter", "gradient of input 0", "PyTorch's own gradcheck fails here"),
    Difference("aminmax", "Expected out tensor", OUT_DTYPE),
    Difference("complex", "complex32", "there is no complex32"),
    Difference("complex", "for argument 'out'", OUT_DTYPE),
    Difference("view_as_complex", "half", "there is no complex32", "float16"),
    Difference("cov", "gradient", "float32 weights are summed in another order"),
    Difference("cov", "jvp", "float32 weights are summed in another order"),
    Difference("histc", "values, such as", "edges of half precision are computed in float32",
               "bfloat16"),
    Difference("histc", "values, such as", "edges of half precision are computed in float32",
               "float16"),
    Difference("logcumsumexp", "", "PyTorch's forward derivative is inexact, and nan for complex"),
    Difference("nextafter", "0 outputs require gradients", "PyTorch's derivative only raises"),
    Difference("narrow_copy", "IndexError", "a dimension out of range is an IndexError everywhere"),
    Difference("hypot", "not implemented for 'Long'", "PyTorch says TypeError of the number"),
    *[Difference(op, "the gradient is not differentiable", "it is constant: the factor is left out")
      for op in ("prod", "index_reduce", "scatter_reduce")],
    *[Difference(op, "second gradient", "PyTorch's is not exact where a factor repeats")
      for op in ("index_reduce", "scatter_reduce")],
    Difference("linalg.norm", "second gradient", "0 at zero, where PyTorch has nan"),
    *[Difference(op, "uint8", "images are rounded once; PyTorch rounds after each axis", "uint8")
      for op in ("nn.functional.interpolate", "nn.functional.upsample_bilinear")],
    Difference("nn.functional.embedding_bag", "values, such as",
               "sums of half precision are kept in float32", "bfloat16"),
    Difference("nn.functional.batch_norm", "running_mean should contain 1",
               "an input of one dimension has one channel"),
    Difference("signal.windows.*", "'layout'", "dense tensors have one layout"),
    *[Difference(op, "values, such as", "SciPy's is exact to 1e-15, PyTorch's to 1e-7")
      for op in ("special.bessel_j0", "special.bessel_y1")],
]  # fmt: skip
