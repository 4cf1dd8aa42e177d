"""Lines of random programs with layers, lists of tensors and layouts, in templates of table.py.

A checkpoint has something to hold, so that no transform is around it: PyTorch refuses that late.
"""

from __future__ import annotations

from .table import rows_of

LAYERS = rows_of("""
layered(t.nn.Linear({x}.shape[-1], 2), {x})  real 1d
layered(t.nn.utils.parametrizations.weight_norm(t.nn.Linear({x}.shape[-1], 2)), {x})  real 1d
layered(t.nn.Sequential(t.nn.Linear({x}.shape[-1], 3), t.nn.Tanh(), t.nn.Linear(3, 2)), {x})  real 1d
layered(t.nn.DataParallel(t.nn.Linear({x}.shape[-1], 2)), {x})  real 2d
layered(t.nn.BatchNorm1d({x}.shape[-1]), {x})  real =2d | clear({x}.std(0), 0)
layered(t.nn.BatchNorm1d({x}.shape[-1]).eval(), {x})  real =2d
layered(t.nn.LayerNorm({x}.shape[-1]), {x})  real 1d | clear({x}.std(-1, correction=0), 0)
layered(t.nn.Bilinear({x}.shape[-1], {x}.shape[-1], 2), {x}, {x} * {c})  real 1d
t.func.functional_call(t.nn.Linear(2, 2), dict(weight={x} * .5, bias={x}[:, 0]), ({x},))  real =2d
t.func.functional_call(t.nn.Sequential(t.nn.Linear(2, 2), t.nn.Tanh()), dict([('0.weight', {x}), ('0.bias', {x}[:, 0])]), ({x},))  real =2d
t.func.vmap(lambda w, layer=t.nn.Linear(2, 2, bias=False): t.func.functional_call(layer, dict(weight=w), (w,)))({x})  real =3d
t.utils.checkpoint.checkpoint_sequential([t.sin, t.tanh, t.square], 2, {x}, use_reentrant={b}) | tame({x})
t.nn.utils.parameters_to_vector([{x}, {x}.sin()])
sum(t._foreach_mul([{x}, {x}.sin()], {c}))
t._foreach_add([{x}, {x} + {y}], {c})[1]
t._foreach_mul([{x}, {y}], [{y}, {x}])[1]
t._foreach_div([{x}], [{y} * {y}.conj() + 1])[0]
t._foreach_addcmul([{x}, {y}], [{y}, {y}], [{z}, {y}], value={c})[0]
t._foreach_lerp([{x}], [{y}], .3)[0]
t._foreach_exp([{x} * .3, {x}])[0]
t._foreach_sqrt([{x} * {x} + .5])[0]  real
t._foreach_norm([{x}, {x} * 2])[1] | clear({x}, 0)
t._foreach_pow([{x}], 2)[0]
t._foreach_maximum([{x}], {c})[0]  real | clear({x}, 0.5, 1.5, -.7, 2, .3)
{x}.view({x}.real.dtype)  complex 1d
{x}.mH  real 2d
{x}.adjoint() * 1  2d
{x}.resolve_conj()
{x}[None].contiguous(memory_format=t.channels_last)  =3d
{x}[None].to(memory_format=t.channels_last) * {c}  =3d
t.nn.functional.conv2d({x}[None].to(memory_format=t.channels_last), {x}[None, :, :2, :2])  real =3d
t.nn.functional.max_pool2d({x}[None].to(memory_format=t.channels_last), 2, 1)  real =3d | apart({x})
t.nn.functional.avg_pool2d({x}[None].to(memory_format=t.channels_last), 2, 1)  real =3d
t.nn.functional.batch_norm({x}[None].to(memory_format=t.channels_last), None, None, training=True)  real =3d | clear({x}.std((1, 2)), 0)
t.nn.functional.interpolate({x}[None].to(memory_format=t.channels_last), scale_factor=2.0)  real =3d
""")  # fmt: skip  # noqa: E501

LISTS_IN_PLACE = rows_of("""
t._foreach_mul_([{x}], {c})
t._foreach_add_([{x}], [{y}])
t._foreach_sub_([{x}], [{y}], alpha={c})
t._foreach_copy_([{x}], [{y}])
t._foreach_zero_([{x}])
t._foreach_addcmul_([{x}], [{y}], [{z}], value={c})
t._foreach_lerp_([{x}], [{y}], .3)
t._foreach_sigmoid_([{x}])
""")
