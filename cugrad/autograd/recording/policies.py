"""Which ops autocast casts."""

from __future__ import annotations

__all__ = ["AS_GIVEN", "CASTS", "FULL", "LOWER", "POLICIES", "REFUSED", "WIDEST"]

# Which ops run in the lower precision, which in float32, and which in the widest dtype that they
# are given: PyTorch's lists (aten/src/ATen/autocast_mode.h), by the names of rows and functions.
# AS_GIVEN are functions that call ops of these lists and are not to be cast themselves.
LOWER, FULL, WIDEST, AS_GIVEN, REFUSED = "lower", "float32", "widest", "as given", "refused"

_LOWER = """
    linear linear_weight mm bmm matmul baddbmm addmm addbmm convolution convolution_input prelu
    prelu_kernel
    conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention vecdot
"""
_LOSSES = """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div ctc_loss
    binary_cross_entropy_with_logits poisson_nll_loss cosine_embedding_loss hinge_embedding_loss
    margin_ranking_loss multi_margin_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss
"""
CUDA = {
    LOWER: _LOWER + """
        addmv addr mv einsum multi_dot chain_matmul lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
        rnn_tanh_cell rnn_relu_cell
    """,
    FULL: _LOSSES + """
        acos asin cosh tan sinh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt pow square
        softplus native_layer_norm native_group_norm rms_norm cosine_similarity dist pdist cdist
        renorm logsumexp prod sum cumprod cumsum softmax log_softmax linalg_vector_norm norm
        interpolate
    """,
    WIDEST: "addcdiv addcmul atan2 bilinear cross linalg_cross dot vdot tensordot grid_sample "
            "index_put scatter_add cat stack",
    REFUSED: "binary_cross_entropy",
}  # fmt: skip
CPU = {
    LOWER: _LOWER + "lstm rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell",
    FULL: _LOSSES + """
        binary_cross_entropy avg_pool3d adaptive_avg_pool3d max_pool3d_with_indices max_unpool2d
        pad_edges cdist prod trace quantile nanquantile grid_sample fft_c2c fft_c2r fft_r2c polar
        view_as_complex cholesky cholesky_ex cholesky_inverse cholesky_solve eig eigh eigvals
        eigvalsh geqrf householder_product inv inv_ex inverse lstsq lu_solve orgqr ormqr
        triangular_solve matrix_rank cond pinverse qr solve svd svdvals tensorinv tensorsolve
    """,
    AS_GIVEN: "bilinear interpolate constant_pad_nd",
    WIDEST: "cat stack index_copy gru lstm_cell gru_cell",
}  # fmt: skip


def _by_name(lists: dict[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in lists.items() for name in names.split()}


POLICIES = dict.fromkeys(("cuda", "simulated"), _by_name(CUDA)) | {"cpu": _by_name(CPU)}
CASTS = frozenset().union(*POLICIES.values())  # of all types of device
