"""Lines of random programs that are left, in the templates of table.py: other names, and layers."""

from __future__ import annotations

from .table import rows_of

UNCOMMON = rows_of("""
(0.9 * {x}.tanh()).arccos()  real
(0.9 * {x}.tanh()).arctanh()  real
{x}.divide({c})
{x}.neg()
{x}.inverse()  =2d square | tame({x}.inverse(), 20)
{x}.isinf()  any
{x}.isneginf()  real
{x}.le(.3)  real | clear({x}, .3)
{x}.greater_equal({y})  real | clear({x} - {y}, 0)
{x}.not_equal({c})  real | clear({x}, {c})
t.logical_or({m}, {m}.logical_not())  any
t.bitwise_xor({m}, {m}.bitwise_not())  any
t.bitwise_left_shift({j}, 2) * 1  1d
t.concatenate([{x}, {x} * {c}], -1)  1d
t.row_stack([{x}, {y}])  1d
t.zeros_like({x}).as_strided_scatter({x}.reshape(-1)[:1], (1,), (1,))  1d
t.fill({x}, {c})
t.full_like({x}, {c}) * {x}
{x}.new_ones(()) - {x}
{x}.nonzero_static(size=3, fill_value=-1)  1d | clear({x}, 0)
t.unravel_index({j} % 12, (3, 4))[1] * 1  1d
t.nn.functional.lp_pool3d({x}[None].abs() + .1, 2., (1, 2, 2))  real =3d
t.nn.functional.max_unpool3d(*t.nn.functional.max_pool3d({x}[None], (1, 2, 2), return_indices=True), (1, 2, 2))  real =3d | apart({x})
t.nn.functional.multilabel_margin_loss({x}, t.tensor([[1, 0, -1, 2]]).expand({n}, 4)[:, :{x}.shape[-1]].clamp(max={x}.shape[-1] - 1))  real =2d | apart({x})
t.nn.functional.ctc_loss(t.stack([t.cat([{x} * c, {x}], -1) for c in (1, .5, -1)]).log_softmax(-1), t.ones({n}, 1).long(), t.full(({n},), 3), t.ones({n}).long())  real =2d
t.nn.functional.ctc_loss(t.stack([t.cat([{x} * c, {x}], -1) for c in (1, .5, -1)]).log_softmax(-1), t.ones({n}, 2).long(), t.full(({n},), 2), t.full(({n},), 2), zero_infinity=True, reduction='none')  real =2d
t.segment_reduce({x}, 'mean', lengths=t.tensor([1, {n} - 1]), axis=0)  real 1d
t.segment_reduce({x}, 'max', lengths=t.tensor([{n}]), axis=0)  real 1d | apart({x})
t.geqrf({x})[0].triu().abs()  real =2d square
t.fft.hfftn({x}, dim=(-1,)).sum()  2d
t.fft.ihfftn({x}, dim=(-1,)).abs().sum()  real 2d
t.special.chebyshev_polynomial_u({x}.detach(), 3)  real
t.special.hermite_polynomial_he({x}.detach(), 2)  real
t.special.laguerre_polynomial_l({x}.detach(), 3)  real
t.special.gammainc(t.tensor(1.5, dtype={x}.dtype), {x} * {x} + .5)  real
t.special.spherical_bessel_j0({x}.detach())  real
t.norm_except_dim({x}, 2, 0)  real 2d | clear({x}, 0)
t.nn.functional.threshold({x}, .1, {c})  real | clear({x}, .1)
layered(t.nn.GroupNorm(1, {n}), {x}[None])  real =2d
layered(t.nn.InstanceNorm1d({n}, affine=True), {x}[None])  real =2d | clear({x}.std(-1), 0)
layered(t.nn.RMSNorm({x}.shape[-1]), {x})  real 1d
layered(t.nn.PReLU(), {x})  real | clear({x}, 0)
layered(t.nn.Conv1d({n}, 2, 1, padding_mode='circular', padding=1), {x})  real =2d
layered(t.nn.Conv2d({n}, 2, 2, padding='same', padding_mode='reflect'), {x})  real =3d
layered(t.nn.ConvTranspose1d({n}, 2, 2, stride=2, output_padding=1), {x})  real =2d
layered(t.nn.RNNCell({x}.shape[-1], 2), {x})  real =2d
layered(t.nn.TransformerEncoderLayer({x}.shape[-1], 1, 3, dropout=0., batch_first=True, norm_first={b}), {x})  real 2d | clear({x}.std(-1), 0)
layered(t.nn.TransformerDecoderLayer({x}.shape[-1], 1, 3, dropout=0.), {x}, {y})  real 2d | clear({x}.std(-1), 0)
t.nn.CosineSimilarity(0)({x}, {y})  real 1d | clear({x}, 0); clear({y}, 0)
t.nn.Softmax2d()({x})  real =3d
t.nn.Unflatten(0, (1, -1))({x})  any 1d
t.nn.ReplicationPad2d((1, 0, 2, 1))({x})  real =3d
t.nn.CircularPad2d(1)({x})  real =3d
t.nn.ReflectionPad1d((1, 0))({x})  real =2d
t.nn.TripletMarginLoss(swap={b})({x}, {y} + 1, {z} - 1)  real =2d | clear({x}, 0)
t.nn.GaussianNLLLoss(full={b})({x}, {y}, {z} * {z} + .1)  real 1d
t.nn.PoissonNLLLoss(full=True)({x}, {y}.detach() * {y}.detach() + 2)  real
t.nn.MultiLabelSoftMarginLoss()({x}, {m} * t.ones((), dtype={x}.dtype))  real =2d
t.nn.utils.rnn.pad_sequence([{x}, {x}[1:]], batch_first={b}, padding_value=.1)  1d
t.nn.utils.rnn.pack_padded_sequence({x}, [{n}, 1], batch_first=False)[0]  =3d
{x}.sparse_mask(t.eye({n}, {x}.shape[1], dtype={x}.dtype).to_sparse()).to_dense()  =2d
""")  # fmt: skip  # noqa: E501

UNCOMMON_IN_PLACE = rows_of("""
{x}.arctan_()  real
{x}.arcsinh_()  real
{x}.arctan2_({y})  real | clear({x}, 0); clear({y}, 0); two({x}, {y})
{x}.heaviside_({y}.detach())  real | clear({x}, 0)
{x}.fix_()  real | clear({x}, 0, 1, 2, 3, -1, -2, -3)
{x}.ne_({c})  real | clear({x}, {c})
{x}.swapaxes_(0, -1).mul_({c}).swapaxes_(0, -1)  own 1d
{x}.polygamma_(0)  real | clear({x}, 0, -1, -2); tame({x}, 3)
{x}.rad2deg_().mul_(.01)  real
t.nn.functional.elu_({x})  real | clear({x}, 0)
t.nn.functional.celu_({x}, .7)  real | clear({x}, 0)
t.nn.functional.selu_({x})  real | clear({x}, 0)
t.nn.functional.hardtanh_({x}, -.4, .6)  real | clear({x}, -.4, .6)
t.nn.functional.leaky_relu_({x}, .2)  real | clear({x}, 0)
t.nn.functional.threshold_({x}, .1, .3)  real | clear({x}, .1)
""")  # fmt: skip
