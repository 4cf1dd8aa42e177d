"""What a line of a random program may say: templates by sort, with what their operands must be.

Of a template, {x} {y} {z} are tensors ({y} and {z} of the dtype of {x} for the most part), {d} {e}
dims of {x}, {i} an index along {d}, {k} a small size, {n} the size of dim 0, {c} a number, {b} True
or False, {m} a mask like {x}, {j} indices along {d}, {J} indices of the shape of {x} along {d}, {s}
its shape, {I} the identity matrix of its last size, {A} a diagonal one of distinct numbers. Behind
two spaces stand words: which dtypes {x} may have (real, complex, any; floating point if nothing is
said), how many dims it has at least (1d, 2d, =2d), and behind a bar what must hold, as calls of the
guards in running.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Row(NamedTuple):
    text: str
    kind: str  # "real", "complex", "any" or "": floating point and complex
    dims: int
    exact: bool
    needs: tuple[str, ...]
    square: bool
    own: bool  # of a leaf: the layouts of what ops return are open
    full: bool  # of some elements: windows of none are errors in one library or the other


def rows_of(text: str) -> tuple[Row, ...]:
    rows = []
    for line in filter(None, text.strip().splitlines()):
        line, _, needs = line.partition(" | ")
        template, _, words = line.strip().partition("  ")
        if template.startswith(("t.linalg.", "t.fft.")):
            # their layouts are open, and with them what is a view
            template += ".clone(memory_format=t.contiguous_format)"
        said = words.split()
        dims = next((int(w.strip("=d")) for w in said if re.fullmatch(r"=?\dd", w)), 0)
        kind = next((w for w in said if w in ("real", "complex", "any")), "")
        checks = tuple(need.strip() for need in needs.split(";") if need.strip())
        exact = any(w.startswith("=") for w in said)
        rows.append(
            Row(
                template,
                kind,
                dims,
                exact,
                checks,
                "square" in said,
                "own" in said,
                re.search("conv|pool", template) is not None,
            )
        )
    return tuple(rows)


POINTWISE = rows_of("""
{x}.sin()
{x}.cos()
{x}.tanh()
{x}.sigmoid()
(0.3 * {x}).exp()
{x}.square()
-{x}
{x} * {c}
{c} - {x}
{x} + {c}
{x} / {c}
{c} / ({x} * {x}.conj() + 1)
{x} ** 2
{x} ** 3
{x}.pow(2)
{x}.abs() | clear({x}, 0)
{x}.sinh()
{x}.asinh()  real
{x}.expm1()
{x}.atan()  real
{x}.reciprocal() | clear({x}, 0)
{x}.rsqrt()  real | clear({x}.clamp(max=0), 0)
{x}.sgn() | clear({x}, 0)
{x}.conj()
{x}.mH  2d
{x}.conj().imag  complex
{x}.conj_physical()
{x}.clone()
{x}.contiguous()
{x}.positive()
{x}.negative()
{x}.log()  real | clear({x}, 0)
{x}.log()  complex | clear({x}, 0); clear({x}.imag, 0)
{x}.log1p()  real | clear({x}, -1)
t.view_as_real({x})  complex
t.view_as_complex(t.stack([{x}, {x} * {c}], -1))  real
{x}.real
{x}.imag  complex
{x}.angle()  complex | clear({x}, 0); clear({x}.imag, 0)
{x}.relu()  real | clear({x}, 0)
t.nn.functional.gelu({x})  real
t.nn.functional.gelu({x}, approximate='tanh')  real
t.nn.functional.silu({x})  real
t.nn.functional.softplus({x})  real
t.nn.functional.elu({x})  real | clear({x}, 0)
t.nn.functional.celu({x})  real | clear({x}, 0)
t.nn.functional.selu({x})  real | clear({x}, 0)
t.nn.functional.leaky_relu({x})  real | clear({x}, 0)
t.nn.functional.hardtanh({x})  real | clear({x}, -1, 1)
t.nn.functional.relu6({x})  real | clear({x}, 0, 6)
t.nn.functional.logsigmoid({x})  real
t.nn.functional.softsign({x})  real | clear({x}, 0)
t.nn.functional.tanhshrink({x})  real
t.nn.functional.softshrink({x})  real | clear({x}, -.5, .5)
t.nn.functional.hardshrink({x})  real | clear({x}, -.5, .5)
t.nn.functional.hardswish({x})  real | clear({x}, -3, 3)
t.nn.functional.hardsigmoid({x})  real | clear({x}, -3, 3)
t.nn.functional.mish({x})  real
t.nn.functional.threshold({x}, .3, .1)  real | clear({x}, .3)
t.nn.functional.dropout({x}, 0.0)
t.nn.functional.dropout({x}, 0.5, training=False)
{x}.erf()  real
{x}.erfc()  real
t.special.erfcx({x})  real
(0.9 * {x}.tanh()).erfinv() * 1  real
({x} * {x} + .5).lgamma()  real
({x} * {x} + .5).digamma()  real
{x}.exp2()
{x}.sinc() | clear({x}, 0)
({x} * {x} + .5).sqrt()  real
({x} * {x} + .5).log()  real
({x} * {x} + .5).log2()  real
({x} * {x} + .5).log10()  real
({x} * {x} + 1.5).acosh()  real
(0.9 * {x}.tanh()).asin()  real
(0.9 * {x}.tanh()).acos()  real
(0.9 * {x}.tanh()).atanh()  real
{x}.sigmoid().logit()  real
{x}.abs().pow(1.5)  real | clear({x}, 0)
{x}.clamp(-.5, .5)  real | clear({x}, -.5, .5)
{x}.clamp(min=.1)  real | clear({x}, .1)
{x}.clamp(max=.2)  real | clear({x}, .2)
{x}.nan_to_num()  real
{x}.deg2rad()  real
{x}.frac()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.trunc()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.floor()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.round()  real | clear({x}, .5, 1.5, 2.5, 3.5, -.5, -1.5, -2.5, -3.5)
{x}.sign()  real | clear({x}, 0)
{x}.i0()  real
t.special.i1({x})  real
t.special.i0e({x})  real
t.special.ndtr({x})  real
t.special.log_ndtr({x})  real
t.special.entr({x}.square() + .1)  real
t.zeros_like({x}) + {x}
t.ones_like({x}) * {x}
t.polar({x}.abs() + .1, {x})  real | clear({x}, 0)
t.complex({x}, {x} * {c})  real
{x}.float()
{x}.double()  real
{x}.to(t.complex128)
{x}.to(t.float32)  real
{x}.to(t.bfloat16)  real
{x}.type_as({y})
""")

BINARY = rows_of("""
{x} + {y}
{x} - {y}
{x} * {y}
{x} * {y}
{x} / ({y} * {y}.conj() + 1)
t.add({x}, {y}, alpha={c})
t.sub({x}, {y}, alpha={c})
t.rsub({x}, {y})
{x}.atan2({y})  real | clear({x}, 0); clear({y}, 0); two({x}, {y})
t.maximum({x}, {y})  real | clear({x} - {y}, 0)
t.minimum({x}, {y})  real | clear({x} - {y}, 0)
t.fmax({x}, {y})  real | clear({x} - {y}, 0)
t.where({m}, {x}, {y})
t.where({m}, {x}, {c})
t.hypot({x}, {y})  real | clear({x}, 0); clear({y}, 0)
t.logaddexp({x}, {y})  real
t.logaddexp2({x}, {y})  real
t.lerp({x}, {y}, .3)
t.lerp({x}, {y}, {z})
t.addcmul({x}, {y}, {z}, value={c})
t.addcdiv({x}, {y}, {z} * {z}.conj() + 1, value={c})
t.xlogy({x}, {y} * {y} + .5)  real
t.special.xlog1py({x}, {y} * {y} + .5)  real
({x}.abs() + .5) ** {y}  real | clear({x}, 0)
{c} ** {x}  real | clear({x}, 0)
t.dist({x}, {y})  real | clear({x} - {y}, 0)
t.complex({x}, {y})  real
t.polar({x}.abs() + .1, {y})  real | clear({x}, 0)
t.copysign({x}, {y})  real | clear({x}, 0); clear({y}, 0)
t.fmod({x}, 5.5)  real | clear({x}, 0, 5.5, -5.5)
t.remainder({x}, 5.5)  real | clear({x}, 0, 5.5, -5.5)
t.nn.functional.mse_loss({x}, {y})  real
t.nn.functional.l1_loss({x}, {y}, reduction='sum')  real | clear({x} - {y}, 0)
t.nn.functional.smooth_l1_loss({x}, {y})  real | clear({x} - {y}, 0, 1, -1)
t.nn.functional.huber_loss({x}, {y})  real | clear({x} - {y}, 1, -1)
t.nn.functional.binary_cross_entropy_with_logits({x}, {y}.sigmoid())  real
t.nn.functional.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid())  real | tame({x}, 5)
t.nn.functional.kl_div({x}, {y}, log_target=True, reduction='sum')  real
t.nn.functional.poisson_nll_loss({x}, {y})  real
t.nn.functional.soft_margin_loss({x}, {y}.detach())  real
t.nn.functional.cosine_similarity({x}, {y}, {d})  real 1d
t.nn.functional.pairwise_distance({x}, {y})  real 1d | clear({x} - {y}, 0)
t.cat([{x}, {y}], {d})  1d
t.stack([{x}, {y}], 0)
t.hstack([{x}, {y}])  1d
t.vstack([{x}, {y}])  1d
sum(t.broadcast_tensors({x}, {y}))
t.cross({x}, {y}, dim={d})  1d
t.linalg.vecdot({x}, {y})  1d
t.mul({x}, {y}, out=t.empty(0, dtype={x}.dtype))
""")

REDUCING = rows_of("""
{x}.sum()
{x}.sum({d})  1d
{x}.sum({d}, keepdim=True)  1d
{x}.mean()
{x}.mean({d}, keepdim={b})  1d
{x}.prod()
{x}.prod({d})  1d
{x}.amax({d})  real 1d | apart({x})
{x}.amin()  real | apart({x})
{x}.max()  real | apart({x})
{x}.max({d})[0]  real 1d | apart({x})
{x}.min({d}, keepdim={b}).values  real 1d | apart({x})
{x}.median()  real | apart({x})
{x}.median({d}).values  real 1d | apart({x})
t.stack(t.aminmax({x}))  real | apart({x})
{x}.var()
{x}.var({d}, unbiased={b})  1d | clear({x}.std({d}), 0)
{x}.std({d}, correction=0)  1d | clear({x}.std({d}, correction=0), 0)
t.var_mean({x}, {d})[1]  1d
t.std_mean({x}, {d})[1] + t.var_mean({x}, {d})[0]  1d | clear({x}.std({d}), 0)
{x}.logsumexp({d})  real 1d
{x}.norm() | clear({x}, 0)
{x}.norm(1) | clear({x}, 0)
{x}.norm(3, {d})  1d | clear({x}, 0)
t.linalg.vector_norm({x}, 2.5) | clear({x}, 0)
t.linalg.vector_norm({x}, float('inf')) | apart({x})
t.linalg.norm({x})  =2d | clear({x}, 0)
t.renorm({x}, 2, 0, 0.4)  2d | clear({x}, 0)
t.nn.functional.normalize({x}, dim={d})  1d | clear({x}, 0)
{x}.nansum()  real
{x}.nanmean({d})  real 1d
{x}.cumsum({d})  1d
{x}.cumprod({d})  1d
{x}.logcumsumexp({d})  real 1d
{x}.cummax({d}).values  real 1d | apart({x})
{x}.cummin({d})[0]  real 1d | apart({x})
{x}.softmax({d})  real 1d
{x}.log_softmax({d})  real 1d
t.nn.functional.softmin({x}, {d})  real 1d
{x}.sort({d}).values  real 1d | apart({x})
{x}.sort({d}, descending=True)[0]  real 1d | apart({x})
{x}.topk(1, {d}).values  real 1d | apart({x})
{x}.kthvalue(1, {d}).values  real 1d | apart({x})
{x}.msort()  real 1d | apart({x})
{x}.quantile(.3)  real | apart({x})
{x}.diff(dim={d})  1d
{x}.count_nonzero()  any | clear({x}, 0)
{x}.argmax()  real | apart({x})
{x}.argsort({d})  real 1d | apart({x})
{x}.any()  any | clear({x}, 0)
{x}.all({d})  any 1d | clear({x}, 0)
t.trapezoid({x}, dim={d})  1d
t.cumulative_trapezoid({x}, dim={d})  1d
{x}.flip({d})  1d
{x}.roll(1, {d})  1d
{x}.roll(2)
{x}.rot90().contiguous()  2d
{x}.fliplr()  2d
{x}.repeat(2, *[1] * {x}.dim())
{x}.tile(2)
{x}.repeat_interleave(2, {d})  1d
{x}.trace()  =2d
{x}.tril({i})  2d
{x}.triu()  2d
{x}.diag_embed()  1d
{x}.diag()  1d
t.diagflat({x})
t.block_diag({x}, {x})  =2d
t.combinations({x})  =1d
t.gradient({x})[0]  =1d
t.cov({x})  =2d
t.histc({x}.detach())  real
t.nn.functional.pad({x}, (1, 2))  1d
t.nn.functional.pad({x}, (1, 0), value={c})  1d
t.nn.functional.pad({x}[None, None], (1, 1), mode='replicate')  =1d
t.nn.functional.layer_norm({x}, {x}.shape[-1:])  real 1d | clear({x}.std(-1, correction=0), 0)
t.nn.functional.glu({x}, {d})  real 1d
""")

INDEXING = rows_of("""
{x}.gather({d}, {J})  1d
{x}.index_select({d}, {j})  1d
t.take_along_dim({x}, {J}, {d})  1d
{x}.take({j})  1d
{x}[{j}]  1d
{x}[..., {j0}]  1d
{x}[{j}, {j}]  2d
{x}[{j}, None, :1]  2d
{x}[{m}]
{x}.masked_select({m})
{x}.masked_fill({m}, {c})
{x}.masked_scatter({m}, {y})
{x}.scatter({d}, {J}, {c})  1d
{x}.scatter({d}, {J1}, {y})  1d
{x}.scatter_add({d}, {J}, {y})  1d
{x}.scatter_reduce({d}, {J}, {y}, 'sum')  1d
{x}.scatter_reduce({d}, {J}, {y}, 'mean', include_self={b})  1d
{x}.index_add({d}, {j}, {x}.index_select({d}, {j}), alpha={c})  1d
{x}.index_copy({d}, t.tensor([{i}]), {x}.narrow({d}, 0, 1))  1d
{x}.index_fill({d}, {j}, {c})  1d
{x}.index_put(({j},), {x}[{j}] * {c}, accumulate=True)  1d
t.select_scatter({x}, {x}.select({d}, {i}) * {c}, {d}, {i})  1d | dense({x})
t.slice_scatter({x}, {x}[:1] * {c}, 0, 0, 1)  1d | dense({x})
t.diagonal_scatter({x}, {x}.diagonal() * {c})  2d | dense({x})
t.where({m}, {x}, {x} * {c})
t.nonzero({x}.detach())  any | clear({x}, 0)
t.nn.functional.one_hot({j}, 9)  1d
t.nn.functional.embedding({j}, {x})  =2d
t.nn.functional.cross_entropy({x}, t.zeros({x}.shape[0], dtype=t.int64))  real =2d
t.nn.functional.nll_loss({x}, t.zeros({x}.shape[0]).long(), reduction='none')  real =2d
t.bincount({j}, weights={x}.detach()[{j}].real)  =1d
t.searchsorted({x}.detach().sort().values, {x}.detach())  real =1d | apart({x})
""")

MATRICES = rows_of("""
{x} @ {y}  1d
{x} @ {x}.mT.conj()  2d
{x}.mT @ {x}  2d
t.matmul({x}, {y})  1d
t.mm({x}, {x}.t())  =2d
t.bmm({x}, {x}.mT)  3d
{x}.mv({y})  =2d
t.einsum('ij,kj->ik', {x}, {x})  =2d
t.einsum('ij,ij->j', {x}, {y})  =2d
t.einsum('...i->...', {x})  1d
t.einsum('ii->i', {x})  =2d square
t.outer({x}, {x})  =1d
t.dot({x}, {x})  =1d
t.vdot({x}, {x})  =1d
t.inner({x} * 1, {x} * 1)  1d
t.tensordot({x}, {x}, 1)  =2d square
t.kron({x} * 1, {x} * 1)  =1d
t.addmm({x}, {x}, {x}, beta=.5, alpha=.3)  =2d square
t.baddbmm({x}, {x}, {x})  3d square
t.addmv({x}, {x}[:, None] * {x}, {x})  =1d
t.addr({y}, {x}, {x})  =1d
t.chain_matmul({x}, {x}.t(), {x})  =2d
t.linalg.multi_dot([{x}, {x}.t(), {x}])  =2d
t.linalg.matrix_power({x}, 2)  2d square
t.linalg.inv({x} @ {x}.mH + {I})  2d square
t.linalg.det({x} @ {x}.mH + {I}).real  2d square
t.linalg.slogdet({x} @ {x}.mT + {I})[1]  real 2d square
t.linalg.solve({x} @ {x}.mH + {I}, {x})  2d square
t.linalg.cholesky({x} @ {x}.mT + {I})  real 2d square
t.linalg.solve_triangular({x}.tril() * .2 + {I}, {x}, upper=False)  2d square
t.linalg.pinv({x} @ {x}.mH + {I})  real 2d square
t.linalg.matrix_exp({x} * .2)  2d square
t.linalg.svdvals({x} @ {x}.mT + {A})  real =2d square
t.linalg.eigvalsh({x} @ {x}.mH + {A})  =2d square
t.cdist({x}, {x} + 3)  real 2d
t.nn.functional.linear({x}, {y})  1d
t.nn.functional.linear({x}, {x})  =2d
t.nn.functional.bilinear({x}, {x}, {x}[None].expand(2, -1, -1))  real =2d square
t.nn.functional.conv1d({x}[None], {x}[None, :, :1])  =2d
t.nn.functional.conv1d({x}[None, None], {x}[None, None, :2], padding=1)  real =1d
t.nn.functional.conv2d({x}[None, None], {x}[None, None, :2, :2], padding=1, stride=2)  real =2d
t.nn.functional.conv_transpose1d({x}[None, None], {x}[None, None, :2])  real =1d
t.nn.functional.avg_pool1d({x}[None], 2)  real =2d
t.nn.functional.max_pool1d({x}[None], 2)  real =2d | apart({x})
t.nn.functional.max_pool2d({x}[None], 2, stride=1)  real =2d | apart({x})
t.nn.functional.adaptive_avg_pool1d({x}[None], 2)  real =2d
t.nn.functional.interpolate({x}[None], scale_factor=2.0)  real =2d
t.nn.functional.interpolate({x}[None, None], scale_factor=2.0, mode='bilinear')  real =2d
t.nn.functional.unfold({x}[None, None], 2)  =2d
t.nn.functional.scaled_dot_product_attention({x}, {x}, {x})  real 2d
t.nn.functional.group_norm({x}[None], 1)  real =2d | clear({x}.std(correction=0), 0)
t.nn.functional.batch_norm({x}, None, None, training=True)  real =2d | clear({x}.std(0), 0)
t.nn.functional.prelu({x}, t.tensor(.3, dtype={x}.dtype))  real | clear({x}, 0)
t.nn.functional.cosine_embedding_loss({x}, {x} + 1, t.ones({x}.shape[0]))  real =2d
t.nn.functional.triplet_margin_loss({x}, {x} * .5, {x} + 2)  real =2d | clear({x}, 0)
t.fft.fft({x}).abs()  1d | clear(t.fft.fft({x}), 0)
t.fft.fft({x})  1d
t.fft.rfft({x})  real 1d
t.fft.ifft({x}, dim={d})  1d
""")

VIEWS = rows_of("""
{x}[{i}]  any 1d
{x}[{i}:]  any 1d
{x}[:{k}]  any 1d
{x}[::2]  any 1d
{x}[1::2]  any 1d
{x}[..., {i0}]  any 1d
{x}[..., :{k}]  any 1d
{x}[None]  any
{x}[..., None]  any
{x}[...]  any
{x}[:, {i1}]  any 2d
{x}[:, ::2]  any 2d
{x}.transpose({d}, {e})  any 1d
{x}.transpose(0, -1)  any 1d
{x}.permute(*range({x}.dim())[::-1])  any 1d
{x}.swapaxes({d}, {e})  any 1d
{x}.movedim({d}, 0)  any 1d
{x}.t()  any =2d
{x}.T  any =2d
{x}.mT  any 2d

{x}.expand(2, *{x}.shape)  any
{x}.expand_as({y})  any
{x}.broadcast_to((2, *{x}.shape))  any
{x}.unfold({d}, 2, 1)  any 1d
{x}.unfold({d}, 1, 2)  any 1d
{x}.diagonal()  any 2d
{x}.diagonal(1)  any 2d
{x}.diagonal(0, {d}, {e})  any 2d
{x}.view(-1)  any
{x}.view({s})  any
{x}.view(1, -1)  any
{x}.view_as({x})  any
{x}.reshape(-1)  any
{x}.reshape(-1, {k})  any
{x}.flatten()  any
{x}.ravel()  any
{x}.unflatten({d}, (1, -1))  any 1d
{x}.squeeze()  any
{x}.squeeze({d})  any 1d
{x}.unsqueeze(0)  any
{x}.unsqueeze(-1)  any
{x}.unbind({d})[{i}]  any 1d
{x}.unbind()[-1]  any 1d
{x}.split(1, {d})[{i}]  any 1d
{x}.split({k})[0]  any 1d
{x}.chunk(2, {d})[-1]  any 1d
{x}.tensor_split(2)[1]  any 1d
t.hsplit({x}, 2)[1]  any 2d
{x}.conj()  any
{x}.conj()[..., :2]  complex 1d
{x}.real  complex
{x}.imag  complex
t.view_as_real({x})  complex
t.view_as_complex({x})  real 1d
t.view_as_complex({x}.reshape(-1, 2))  real own 1d | own({x})
{x}.as_strided(({k},), (1,))  any own 1d | own({x})
{x}.as_strided((2,), (1,), 1)  any own 1d | own({x})
{x}.select({d}, {i})  any 1d
{x}.narrow({d}, {i}, 1)  any 1d
{x}.narrow({d}, 0, {k})  any 1d
{x}.alias()  any
{x}.detach()  any
{x}.view_as({x}.detach())  any
t.atleast_2d({x})  any
t.broadcast_tensors({x}, {y})[0]  any
{x}.flip(0)[:1]  any 1d
{x}.contiguous()  any
{x}.to({x}.dtype)  any
""")

IN_PLACE = rows_of("""
{x}.mul_({c})
{x}.mul_({y})
{x}.add_({y})
{x}.add_({c})  any
{x}.sub_({y})
{x}.sub_({y}, alpha={c})
{x}.div_({c})
{x}.div_({y} * {y}.conj() + 1)
{x}.sin_()
{x}.cos_()
{x}.tanh_()
{x}.sigmoid_()
{x}.exp_() | tame({x}, 3)
{x}.square_()
{x}.pow_(2)
{x}.neg_()
{x}.abs_()  real | clear({x}, 0)
{x}.relu_()  real | clear({x}, 0)
{x}.clamp_(-.5, .5)  real | clear({x}, -.5, .5)
{x}.zero_()  any
{x}.fill_({c})
{x}.fill_({y}.sum())
{x}.copy_({y})  any
{x}.lerp_({y}, .3)
{x}.addcmul_({y}, {z}, value={c})
{x}.addcdiv_({y}, {z} * {z}.conj() + 1)
{x}.masked_fill_({m}, {c})  any
{x}.masked_scatter_({m}, {y})
{x}.cumsum_({d})  1d
{x}.cumprod_({d})  1d
{x}.tril_()  2d
{x}.index_add_({d}, {j}, {y}.index_select({d}, {j}))  1d
{x}.index_fill_({d}, {j}, {c})  1d
{x}.index_copy_({d}, t.tensor([{i}]), {y}.narrow({d}, 0, 1))  1d
{x}.index_put_(({j},), {y}[{j}], accumulate=True)  1d
{x}.scatter_({d}, {J1}, {c})  1d
{x}.scatter_add_({d}, {J}, {y})  1d
{x}.put_({j}, {y}.take({j}), accumulate=True)  1d
{x}.conj_physical_()
{x}.nan_to_num_()  real
{x}.erf_()  real
{x}.atan_()  real
{x}.sinh_() | tame({x}, 3)
{x}.mul_({y}).add_({c})
{x}.detach().add_({c})
{x}.real.mul_({c})  complex
{x}.imag.add_({c})  complex
{x}.conj().mul_({c})
{x}.conj().imag.add_({c})  complex
t.view_as_real({x}).mul_({c})  complex
t.nn.functional.relu({x}, inplace=True)  real | clear({x}, 0)
t.add({x}, {c}, out={x})
t.nn.init.constant_({x}, {c})  real
{x}.addmm_({x}.clone(), {x}.clone(), beta=.5, alpha=.2)  =2d square
{x}.baddbmm_({x}.clone(), {x}.clone())  3d square
{x}.renorm_(2, 0, .4)  2d | clear({x}, 0)
{x}.hypot_({y})  real | clear({x}, 0); clear({y}, 0)
{x}.atan2_({y})  real | clear({x}, 0); clear({y}, 0); two({x}, {y})
{x}.xlogy_({y} * {y} + .5)  real
{x}.logit_(.1)  real | clear({x}, .1, .9)
{x}.fill_diagonal_({c})  2d
""")

ASSIGNED = rows_of("""
{x}[{i}] = {c}  any 1d
{x}[{i}] = {y}  1d
{x}[:{k}] = {y}  1d
{x}[..., {i0}] = {c}  1d
{x}[{m}] = {c}  any
{x}[{m}] = {y}
{x}[{m}] *= {c}
{x}[{j}] = {c}  1d
{x}[{j1}] = {y}  1d
{x}[:] = {y}  1d
{x}[...] = {y}
{x}[None] = {y}
{x}[::2] += {c}  1d
{x}[:, {i1}] = {y}  2d
{x}[{i}] += {y}  1d
{x} += {y}
{x} *= {c}
{x} -= {y}
{x} /= {c}
{x} **= 2
""")

SHAPE_IN_PLACE = rows_of("""
{x}.t_()  any =2d
{x}.transpose_({d}, {e})  any 1d
{x}.swapdims_({d}, {e})  any 1d
{x}.squeeze_()  any
{x}.unsqueeze_(0)  any
""")
