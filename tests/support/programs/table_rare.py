"""Lines of random programs with what is rarely used; the templates are those of table.py."""

from __future__ import annotations

from .table import rows_of

RARE = rows_of("""
{x}.tan()  real | tame({x}, 1.2)
{x}.cosh()
(0.9 * {x}.tanh()).arcsin()  real
{x}.arctan()  real
{x}.arcsinh()  real
({x} * {x} + 1.5).arccosh()  real
{x}.absolute() | clear({x}, 0)
{x}.ceil()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.fix()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.clamp_min(.1)  real | clear({x}, .1)
{x}.clamp_max(.2)  real | clear({x}, .2)
{x}.clip(-.4, .6)  real | clear({x}, -.4, .6)
{x}.clamp({y} - 2, {y} + 2)  real | clear({x} - {y}, -2, 2)
{x}.div(.7)
{x}.div({y} * {y} + 1, rounding_mode='floor')  real | clear(({x} / ({y} * {y} + 1)), 0, 1, -1)
{x}.true_divide({y} * {y}.conj() + 1)
{x}.multiply({y})
{x}.subtract({y})
{x}.float_power(2)  real
t.fmin({x}, {y})  real | clear({x} - {y}, 0)
{x}.ldexp(t.tensor(2))  real
t.polygamma(1, {x} * {x} + .5)  real
t.mvlgamma({x} * {x} + 2.5, 2)  real
t.igamma(t.tensor(1.5, dtype={x}.dtype), {x} * {x} + .5)  real
t.gcd(t.tensor([4, 6]), t.tensor([6, 9]))  any
{x}.rad2deg() * .01  real
t.special.expit({x})  real
t.special.gammaln({x} * {x} + .5)  real
t.special.psi({x} * {x} + .5)  real
t.special.i1e({x})  real
t.special.ndtri(.5 + .4 * {x}.tanh())  real
t.special.logit({x}.sigmoid())  real
t.special.zeta({x}.detach() * 0 + 2.5, 1.0)  real
{x}.isfinite()
{x}.isnan()  any
{x} > {y}  real | clear({x} - {y}, 0)
{x} == {x}  any
{x}.ne({x})  any
{x}.ge(0)  real | clear({x}, 0)
{x}.lt(.5)  real | clear({x}, .5)
{x}.signbit()  real | clear({x}, 0)
{x}.logical_not()  any | clear({x}, 0)
t.logical_and({m}, {m})  any
t.isclose({x}, {x})
{x}.argmin()  real | apart({x})
{x}.nanmedian()  real | apart({x})
{x}.nanquantile(.4)  real | apart({x})
{x}.frexp()[0]  real | clear({x}, .25, .5, 1, 2, 4, -.25, -.5, -1, -2, -4, 0)
{x}.swapdims(0, -1)  any 1d
{x}.moveaxis(0, -1)  any 1d
{x}.flipud()  any 1d
{x}.vsplit({n})[0]  any 2d
{x}.split_with_sizes([1, {n} - 1])[1]  any 1d
{x}.unsafe_split(1)[0] * 1  1d
{x}.unsafe_chunk(2)[0] * 1  1d
{x}.narrow_copy(0, 0, 1)  any 1d
{x}.detach().unique()  real | apart({x})
{x}.reshape_as({x})  any
{x}.new_zeros(2) + {x}.sum()
{x}.new_tensor([.5, .2]) * {x}.sum()
{x}.new_full((2,), .3) + {x}.mean()
t.view_copy({x}.contiguous(), (-1,))
t.transpose_copy({x}, 0, -1)  1d
t.expand_copy({x}, (2, *{x}.shape))
t.select_copy({x}, 0, {i0})  =1d
t.unbind_copy({x})[0]  1d
t.squeeze_copy({x})
t.atleast_3d({x})
t.column_stack([{x}, {y}])  1d
t.dstack([{x}, {y}])
t.concat([{x}, {x}])  1d
t.cartesian_prod({x}, {x})  =1d
t.meshgrid({x}, {x}, indexing='ij')[0]  =1d
t.trapz({x}, dim=0)  1d
t.tril_indices(2, 2).double() + {x}.sum()  real
t.addbmm({x}[0], {x}, {x})  =3d square
t.corrcoef({x})  =2d | clear({x}.std(-1), 0)
{x}.index_reduce(0, t.zeros({n}, dtype=t.int64), {x}, 'mean')  real 1d
{x}.scatter_reduce(0, t.zeros_like({x}).long(), {x}, 'amax')  real 1d | apart({x})
{x}.scatter_reduce(0, t.zeros_like({x}).long(), {x}, 'prod', include_self=False)  real 1d | clear({x}, 0)
{x}.ger({x})  =1d
t.nuclear_norm({x} @ {x}.mT + {A})  real =2d square
t.linalg.matrix_norm({x}) | clear({x}, 0)
t.linalg.cond({x} @ {x}.mT + {A})  real =2d square
t.linalg.eigh({x} @ {x}.mH + {A})[0]  =2d square
t.linalg.qr({x} + {A})[1].abs()  real 2d square | clear({x}, 0)
t.linalg.svd({x} @ {x}.mT + {A})[1]  real =2d square
t.linalg.lu({x} + {A} * 3)[2]  real =2d square
t.linalg.lu_solve(*t.linalg.lu_factor({x} + {A} * 3), {x})  real =2d square
t.linalg.inv_ex({x} + {A} * 3)[0]  2d square
t.linalg.cholesky_ex({x} @ {x}.mT + {I})[0]  real 2d square
t.linalg.lstsq({x} + {A} * 3, {x})[0]  real =2d square
t.linalg.tensorinv(({x} + {A} * 3), ind=1)  =2d square
t.linalg.tensorsolve({x} + {A} * 3, {x}[0])  =2d square
t.cholesky_solve({x}, t.linalg.cholesky({x} @ {x}.mT + {I}).detach())  real =2d square
t.logdet({x} @ {x}.mT + {I})  real 2d square
t.pinverse({x} @ {x}.mT + {A})  real =2d square
t.fft.fft2({x})  2d
t.fft.fftn({x})  1d
t.fft.irfft({x} + 0j)  1d
t.fft.hfft({x} + 0j)  1d
t.fft.ihfft({x})  real 1d
t.fft.rfft2({x})  real 2d
t.fft.fftshift({x})  1d
t.nn.functional.avg_pool2d({x}[None, None], 2, stride=1)  real =2d
t.nn.functional.adaptive_avg_pool2d({x}[None], 2)  real =2d
t.nn.functional.adaptive_max_pool1d({x}[None], 2)  real =2d | apart({x})
t.nn.functional.lp_pool1d({x}[None].abs() + .1, 2., 2)  real =2d | clear({x}, 0)
t.nn.functional.conv_transpose2d({x}[None, None], {x}[None, None, :2, :2])  real =2d
t.nn.functional.conv3d({x}[None, None, None], {x}[None, None, None, :1, :1])  real =2d
t.nn.functional.instance_norm({x}[None])  real =2d | clear({x}.std(-1, correction=0), 0)
t.nn.functional.rms_norm({x}, {x}.shape[-1:])  real 1d
t.nn.functional.local_response_norm({x}[None], 2)  real =2d
t.nn.functional.fold({x}[None], (1, {x}.shape[1]), 1)  real =2d
t.nn.functional.pixel_shuffle({x}[None, None].expand(1, 4, -1, -1), 2)  real =2d
t.nn.functional.pixel_unshuffle({x}[None, :, :2, :2], 2)  real =3d
t.nn.functional.embedding_bag({j}, {x}, t.tensor([0]))  real =2d
t.nn.functional.gaussian_nll_loss({x}, {y}, {x} * {x} + .5)  real 1d
t.nn.functional.margin_ranking_loss({x}, {x} * 2, t.ones_like({x}), margin=5.)  real | tame({x}, 3)
t.nn.functional.hinge_embedding_loss({x}, t.ones_like({x}))  real
t.nn.functional.multi_margin_loss({x}, t.zeros({x}.shape[0]).long(), margin=9.)  real =2d | tame({x}, 3)
t.nn.functional.multilabel_soft_margin_loss({x}, t.ones_like({x}))  real =2d
t.nn.functional.pdist({x})  real =2d | apart({x})
t.nn.functional.grid_sample({x}[None, None], {y}[:2, :2].tanh()[None, None], align_corners=False)  real =2d
t.nn.functional.interpolate({x}[None, None], size=(5, 4), mode='bicubic')  real =2d
t.nn.functional.interpolate({x}[None], size=3, mode='linear', align_corners=True)  real =2d
t.nn.functional.pad({x}[None, None], (1, 1), mode='circular')  =1d
t.nn.functional.pad({x}[None, None], (1, 1), mode='reflect')  =1d
t.nn.functional.scaled_dot_product_attention({x}, {x}, {x}, is_causal=True)  real 2d
t.nn.functional.cross_entropy({x}, {x}.softmax(1), label_smoothing=.1)  real =2d
t.nn.functional.max_unpool1d(*t.nn.functional.max_pool1d({x}[None], 2, return_indices=True), 2)  real =2d | apart({x})
{x}.as_subclass(Plain)
{x}.as_subclass(Kept)
t.autograd.functional.vhp(lambda a: each(a), {x}, {x})[1]  real
""")  # fmt: skip  # noqa: E501

RARE_IN_PLACE = rows_of("""
{x}.asin_()  real | tame({x}, .9)
{x}.asinh_()  real
{x}.cosh_() | tame({x}, 3)
{x}.log1p_()  real | clear({x}.clamp(max=-1), -1)
{x}.expm1_() | tame({x}, 3)
{x}.exp2_() | tame({x}, 3)
{x}.reciprocal_() | clear({x}, 0)
{x}.sqrt_()  real | clear({x}.clamp(max=0), 0)
{x}.rsqrt_()  real | clear({x}.clamp(max=0), 0)
{x}.sgn_() | clear({x}, 0)
{x}.sign_()  real | clear({x}, 0)
{x}.floor_()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.round_()  real | clear({x}, .5, 1.5, 2.5, -.5, -1.5, -2.5)
{x}.frac_()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.sinc_() | clear({x}, 0)
{x}.erfc_()  real
{x}.i0_()  real
{x}.eq_(0)  any | clear({x}, 0)
{x}.gt_({c})  real | clear({x}, .5, 1.5, -.7, 2, .3)
{x}.float_power_(2)  real
{x}.multiply_({y})
{x}.divide_({c})
{x}.true_divide_({y} * {y}.conj() + 1)
{x}.clamp_min_(.1)  real | clear({x}, .1)
{x}.clip_(-.4, .6)  real | clear({x}, -.4, .6)
{x}.copysign_({y})  real | clear({x}, 0); clear({y}, 0)
{x}.fmod_(5.5)  real | clear({x}, 0, 5.5, -5.5)
{x}.remainder_(5.5)  real | clear({x}, 0, 5.5, -5.5)
{x}.triu_()  2d
{x}.addmv_({x}.clone()[:, None] * {x}.clone(), {x}.clone())  =1d
{x}.addr_({x}.clone()[0], {x}.clone()[0])  =2d square
{x}.masked_fill_({m}, {y}.sum())
{x}.index_fill_({d}, {j}, {y}.sum())  1d
{x}.index_put_(({m},), {y}.sum())
{x}.scatter_({d}, {J1}, {y})  1d
{x}.scatter_reduce_({d}, {J1}, {y}, 'sum')  real 1d
{x}.index_reduce_(0, t.zeros({n}, dtype=t.int64), {y}, 'mean')  real 1d
{x}.unsqueeze(0).mul_({c})
{x}.view(-1).add_({c})
{x}.t().mul_({c})  =2d
{x}.diagonal().zero_()  2d
{x}.diagonal().copy_({y}.diagonal())  2d
{x}[{i}].copy_({y}.sum())  1d
{x}.narrow({d}, 0, 1).fill_({c})  any 1d
{x}.unbind(0)[0].mul_({c})  2d
{x}.real.copy_({y}.imag)  complex
{x}.imag.zero_()  complex
t.view_as_complex({x}.view(-1, 2)).mul_({c})  real 1d
t.mul({x} + 0, {c}, out={x})
t.sin({x} * {c}, out={x})
t.cat([{y}[:1], {y}[1:]], out={x})  1d
t.where({m}, {y}, {y}, out={x})
t.nn.functional.silu({x}, inplace=True)  real
t.nn.functional.leaky_relu({x}, .1, inplace=True)  real | clear({x}, 0)
t.nn.functional.elu({x}, inplace=True)  real | clear({x}, 0)
t.nn.functional.hardtanh({x}, -1, 1, inplace=True)  real | clear({x}, -1, 1)
t.nn.init.zeros_({x})  real
t.nn.init.ones_({x}.view(-1))  real
t.autograd.graph.increment_version({x})
""")  # fmt: skip
