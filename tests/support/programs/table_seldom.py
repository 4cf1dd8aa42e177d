"""Lines of random programs with what is used more seldom still, in the templates of table.py."""

from __future__ import annotations

from .table import rows_of

SELDOM = rows_of("""
({x}[0] * 1).addbmm({x}, {x})  =3d square
t.alias_copy({x})  any
t.as_strided_copy({x}, ({k},), (1,))  own 1d | own({x})
t.atleast_1d({x})  any
t.nn.functional.channel_shuffle({x}[None], 1)  3d
t.nn.functional.conv_transpose3d({x}[None, None, None], {x}[None, None, None, :1, :1])  real =2d
t.nn.functional.conv_tbc({x}, {x}[:1].mT, {x}[0, 0], 0)  real =3d square
t.nn.functional.triplet_margin_with_distance_loss({x}, {x} * .5, {x} + 2)  real =2d | clear({x}, 0)
t.nn.functional.lp_pool2d({x}[None].abs() + .1, 2., 2)  real =2d | clear({x}, 0)
t.nn.functional.max_pool3d({x}[None], 1)  real =3d
t.nn.functional.max_pool3d({x}[None], (1, 2, 2), stride=1)  real =3d | apart({x})
t.nn.functional.avg_pool3d({x}[None], (1, 2, 2), stride=1)  real =3d
t.nn.functional.adaptive_max_pool2d({x}[None], 1)  real =2d | apart({x})
t.nn.functional.adaptive_max_pool3d({x}[None], 1)  real =3d | apart({x})
t.nn.functional.adaptive_avg_pool3d({x}[None], 2)  real =3d
t.nn.functional.max_unpool2d(*t.nn.functional.max_pool2d({x}[None], 2, return_indices=True), 2)  real =3d | apart({x})
t.nn.functional.affine_grid({x}[:, :2, :3], (2, 1, 2, 2), align_corners={b})  real =3d
t.nn.functional.upsample({x}[None], scale_factor=2, mode='nearest')  real =2d
t.nn.functional.interpolate({x}[None], size=2, mode='area')  real =2d
t.nn.functional.interpolate({x}[None], scale_factor=1.5, mode='nearest-exact')  real =2d
t.nn.functional.grid_sample({x}[None], {x}[:1, :2, :2].tanh()[:, None], mode='nearest', align_corners=True)  real =3d | clear({x}, 0)
t.nn.functional.conv2d({x}[None], {x}[:, :1, :2, None].transpose(0, 1), groups=1)  real =3d
t.nn.functional.conv1d({x}[None], {x}[:, :1, None], groups={n})  =2d
t.nn.functional.conv1d({x}[None], {x}[None, :, :1], dilation=2, stride=2, padding=1)  =2d
t.nn.functional.conv1d({x}[None], {x}[None, :, :1], padding='same')  =2d
t.nn.functional.nll_loss({x}, t.zeros({x}.shape[0]).long(), ignore_index=0, reduction='sum')  real =2d
t.nn.functional.cross_entropy({x}, t.zeros({x}.shape[0]).long(), weight={x}.detach()[0].abs())  real =2d
t.clamp({x}, max={y}.detach() + 2)  real | clear({x} - {y}.detach(), 2)
t.cholesky_inverse(t.linalg.cholesky({x} @ {x}.mT + {I}))  real =2d square
t.linalg.eig({x} + {A})[0].abs()  =2d square | clear({x}, 0)
t.linalg.eigvals({x} + {A}).abs()  =2d square | clear({x}, 0)
t.linalg.householder_product({x} * .3, {x}[0] * .3)  real =2d square
t.linalg.matrix_rank({x} @ {x}.mT + {A})  real =2d square
t.linalg.solve_ex({x} + {A} * 3, {x})[0]  2d square
t.linalg.vander({x})  =1d
t.linalg.lu_factor_ex({x} + {A} * 3)[0]  real =2d square
t.linalg.norm({x}, 'nuc')  real =2d square | apart({x})
t.linalg.matrix_norm({x} @ {x}.mT + {A}, 2)  real =2d square
t.linalg.matrix_norm({x}, 1)  =2d | apart({x})
t.linalg.diagonal({x})  2d
t.triangular_solve({x}, {x} * .2 + {A})[0]  =2d square
t.frobenius_norm({x}, {d})  1d | clear({x}, 0)
t.diagonal_copy({x})  2d
t.permute_copy({x}, (1, 0))  =2d
t.t_copy({x})  =2d
t.slice_copy({x}, 0, 0, 1)  1d
t.unsqueeze_copy({x}, 0)
t.unfold_copy({x}, {d}, 1, 1)  1d
t.split_copy({x}, 1, {d})[{i}]  1d
t.view_as_real_copy({x})  complex
t.view_as_complex_copy({x}.detach().reshape(-1, 2))  real own 1d | own({x})
t.detach_copy({x}.detach())
t.constant_pad_nd({x}, (1, -1), {c})  1d
{x}.dsplit({k})[0]  any 3d
{x}.unsafe_split_with_sizes([{n}])[0] * 1  1d
{x}.swapaxes(0, -1)  any 1d
t.floor_divide({x}, .7)  real | clear({x} / .7, 0, 1, -1, 2, -2)
t.heaviside({x}.detach(), {y}.detach())  real
t.igammac(t.tensor(1.5, dtype={x}.dtype), {x} * {x} + .5)  real
t.special.gammaincc(t.tensor(2.5, dtype={x}.dtype), {x} * {x} + .5)  real
t.special.multigammaln({x} * {x} + 2.5, 2)  real
t.special.bessel_j0({x}.detach())  real
t.special.modified_bessel_i0({x}.detach())  real
t.special.modified_bessel_k1({x}.detach().abs() + .5)  real
t.special.chebyshev_polynomial_t({x}.detach(), 3)  real
t.special.legendre_polynomial_p({x}.detach().tanh(), 2)  real
t.lcm(t.tensor([4, 6]), t.tensor([6, 9]))  any
{x}.isposinf()  real
{x}.isreal()  any
t.isin({x}, {x})  real
t.bucketize({x}.detach(), t.tensor([-.5, .1, .8], dtype={x}.dtype))  real | clear({x}, -.5, .1, .8)
t.unique_consecutive({x}.detach())  any
t.argwhere({x}.detach())  any | clear({x}, 0)
t.nextafter({x}.detach(), {y}.detach())  real
{x}.put({j}, {y}.take({j}), accumulate=True)  1d
{x}.gt({c})  real | clear({x}, .5, 1.5, -.7, 2, .3)
t.logical_xor({m}, {m})  any
({x} > 0).bitwise_and({m})  real | clear({x}, 0)
t.fft.ifft2({x})  2d
t.fft.ifftn({x})  1d
t.fft.rfftn({x})  real 1d
t.fft.irfft2({x} + 0j)  2d
t.fft.irfftn({x} + 0j)  1d
t.fft.hfft2({x} + 0j)  2d
t.fft.ihfft2({x})  real 2d
t.fft.ifftshift({x})  1d
t.fft.fft({x}, n=4, norm='ortho')  1d
t.fft.irfft({x} + 0j, n=5, norm='forward')  1d
t.stft({x}, 2, 1, window=t.ones(2, dtype={x}.dtype), return_complex=True)  real =1d
t.istft(t.stft({x}, 2, 1, window=t.ones(2, dtype={x}.dtype), return_complex=True), 2, 1, window=t.ones(2, dtype={x}.dtype))  real =1d
t.vander({x}.detach())  =1d
t.scatter_add({x}, {d}, {J}, {x} * {c})  1d
t.index_reduce({x}, 0, t.zeros({n}, dtype=t.int64), {x}, 'amax')  real 1d | apart({x})
t.index_reduce({x}, 0, t.zeros({n}, dtype=t.int64), {x}, 'prod', include_self={b})  real 1d | clear({x}, 0)
{x}.scatter_reduce({d}, {J}, {y}, 'prod')  real 1d | clear({x}, 0); clear({y}, 0)
{x}.scatter_reduce({d}, {J}, {y}, 'amin', include_self={b})  real 1d | apart(t.cat([{x}.reshape(-1), {y}.reshape(-1)]))
t.nn.functional.embedding({j}, {x}, max_norm=.5)  real own =2d | own({x})
t.nn.functional.embedding_bag({j}, {x}, t.tensor([0]), mode='max')  real =2d | apart({x})
t.nn.functional.embedding_bag({j}, {x}, t.tensor([0]), mode='sum', per_sample_weights={x}.reshape(-1)[:1].expand({j}.shape))  real =2d
t.tensordot({x}, {y}, dims=([{d}], [{d}]))  1d
t.einsum('i...,j...->ij...', {x}, {y})  1d
t.einsum('bij,bjk->bik', {x}, {x})  =3d square
t.std({x}, {d}, keepdim={b})  1d | clear({x}.std({d}), 0)
t.nn.functional.gumbel_softmax({x}, tau=1., hard=True).detach().sum()  real 1d
t.cumulative_trapezoid({x}, {x} * 2, dim={d})  1d
t.diff({x}, n=2, dim={d}, prepend={x})  1d
t.gradient({x}, spacing=2., dim={d})[0]  1d
t.func.stack_module_state([t.nn.Linear(2, 2, dtype={x}.dtype)] * 2)[0]['weight'].detach().sum() * 0 + {x}.sum()  real
""")  # fmt: skip  # noqa: E501

SELDOM_IN_PLACE = rows_of("""
{x}.div_({c}, rounding_mode='trunc')  real | clear({x} / 0.5, 0, 1, -1, 2, -2, 3, -3); clear({x} / 1.5, 0, 1, -1); clear({x} / 0.7, 0, 1, -1, 2, -2); clear({x} / .3, 0, 1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6)
{x}.tanh_().mul_(.9).acos_()  real
{x}.tanh_().mul_(.9).atanh_()  real
{x}.square_().add_(1.5).acosh_()  real
{x}.tanh_().tan_()  real
{x}.log_()  real | clear({x}, 0)
{x}.log_()  complex | clear({x}, 0); clear({x}.imag, 0)
{x}.square_().add_(.5).log2_()  real
{x}.square_().add_(.5).log10_()  real
{x}.ceil_()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.trunc_()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.clamp_max_(.2)  real | clear({x}, .2)
{x}.clamp_({y} - 2, {y} + 2)  real | clear({x} - {y}, -2, 2)
{x}.deg2rad_()  real
{x}.square_().add_(.5).digamma_()  real
{x}.square_().add_(.5).lgamma_()  real
{x}.tanh_().mul_(.9).erfinv_()  real
{x}.floor_divide_(.7)  real | clear({x} / .7, 0, 1, -1, 2, -2)
{x}.ldexp_(t.tensor(2))  real
{x}.subtract_({y})
{x}.negative_()
{x}.less_({c})  real | clear({x}, .5, 1.5, -.7, 2, .3)
{x}.addbmm_({x}.clone()[None], {x}.clone()[None])  =2d square
{x}.sub_({x}.clone()[:1])  1d
{x}.index_put_(({j}, {j}), {y}[{j}, {j}] * .5, accumulate=True)  2d
{x}[{j}] += {y}[{j}]  1d
{x}[{m}] += {y}.sum()
{x}[..., None].mul_({c})
{x}.expand_as({x}).mul_({c})
{x}.unfold({d}, 1, 1).add_({c})  1d
{x}.unflatten(0, (1, -1)).sin_()  1d
{x}.movedim(0, -1).neg_()  1d
{x}.squeeze().mul_({y}.sum())
t.nn.functional.celu({x}, inplace=True)  real | clear({x}, 0)
t.nn.functional.selu({x}, inplace=True)  real | clear({x}, 0)
t.nn.functional.threshold({x}, .3, .1, inplace=True)  real | clear({x}, .3)
t.nn.functional.hardswish({x}, inplace=True)  real | clear({x}, -3, 3)
t.nn.functional.mish({x}, inplace=True)  real
t.nn.functional.dropout({x}, 0., inplace=True)
""")  # fmt: skip  # noqa: E501
