"""What a script may do with `net`, `opt`, `sched`, inputs `x` and targets `y` between its steps.

A line is a statement; `{i}` and `{j}` are places of the chain, `{w}` the name of a parameter. What
stands behind two spaces and a number is how often it is drawn, as against once.
"""

from __future__ import annotations

__all__ = ["OPTIMIZERS", "SCHEDULERS", "STATEMENTS", "STEPS"]

OPTIMIZERS = """
SGD({p}, lr=.1)
SGD({p}, lr=.1, momentum=.9, nesterov=True, weight_decay=.01)
SGD({p}, lr=.1, momentum=.5, dampening=.1, maximize=True)
SGD({p}, lr=t.tensor(.1), foreach=True)
Adam({p}, lr=.01, eps=1e-3)
Adam({p}, lr=.01, eps=1e-3, amsgrad=True, weight_decay=.1, decoupled_weight_decay=True)
Adam({p}, lr=t.tensor(.01), eps=1e-3, betas=(.5, .9))
Adam({p}, lr=t.tensor(.01), eps=1e-3, capturable=False, foreach=True)
Adam({p}, lr=.01, eps=1e-3, fused=True)
AdamW({p}, lr=.01, eps=1e-3, maximize=True)
AdamW({p}, lr=.01, eps=1e-3, amsgrad=True, foreach=False)
Adamax({p}, lr=.01, eps=1e-3)
NAdam({p}, lr=.01, eps=1e-3, decoupled_weight_decay=True, weight_decay=.1)
RAdam({p}, lr=.01, eps=1e-3)
RMSprop({p}, lr=.01, eps=1e-3, centered=True, momentum=.5)
Adagrad({p}, lr=.01, eps=1e-3, lr_decay=.1, initial_accumulator_value=.1)
Adadelta({p}, lr=.5, eps=1e-3)
Adafactor({p}, lr=.01, eps=(1e-3, 1e-3))
ASGD({p}, lr=.01, t0=1)
LBFGS(net.parameters(), lr=.1, max_iter=2)
"""

PARAMETERS = [
    "net.parameters()", "net.parameters()", "net.parameters()", "net.named_parameters()",
    "[{'params': [p for p in net.parameters() if p.dim() > 1]}, "
    "{'params': [p for p in net.parameters() if p.dim() <= 1], 'weight_decay': 0., 'lr': .02}]",
    "[p for p in net.parameters() if p.requires_grad]",
]  # fmt: skip

SCHEDULERS = """
StepLR(opt, 2, .5)
MultiStepLR(opt, [1, 3], .3)
ConstantLR(opt, .5, 2)
LinearLR(opt, .1, total_iters=3)
ExponentialLR(opt, .9)
CosineAnnealingLR(opt, 4, eta_min=.001)
CosineAnnealingWarmRestarts(opt, 2, 2)
PolynomialLR(opt, 4, 2.)
LambdaLR(opt, lambda epoch: .8 ** epoch)
MultiplicativeLR(opt, lambda epoch: .9)
OneCycleLR(opt, .1, total_steps=40, cycle_momentum=False)
CyclicLR(opt, .01, .1, step_size_up=2, cycle_momentum=False)
SequentialLR(opt, [optim.lr_scheduler.ConstantLR(opt, .1, 2), optim.lr_scheduler.ExponentialLR(opt, .9)], [2])
ChainedScheduler([optim.lr_scheduler.ConstantLR(opt, .1, 2), optim.lr_scheduler.ExponentialLR(opt, .9)])
ReduceLROnPlateau(opt, factor=.5, patience=0)
"""  # noqa: E501

STEPS = """
opt.zero_grad(); loss = cost(net(x), y); loss.backward(); opt.step()
opt.zero_grad(set_to_none=False); loss = cost(net(x), y); loss.backward(); opt.step()
loss = cost(net(x), y); loss.backward(); opt.step(); net.zero_grad()
opt.zero_grad(); loss = cost(net(x), y); loss.backward(); log(nn.utils.clip_grad_norm_(net.parameters(), .5)); opt.step()
log(opt.step(once_more))
opt.zero_grad(); loss = sum(cost(net(part), z) for part, z in zip(x.split(1), y.split(1))); loss.backward(); opt.step()
opt.zero_grad(); [(cost(net(x * s) if x.is_floating_point() else net(x), y) / 2).backward() for s in (1, .5)]; opt.step()
opt.zero_grad(); slopes = t.autograd.grad(cost(net(x), y), [p for p in net.parameters() if p.requires_grad], create_graph=True, allow_unused=True); loss = sum(g.square().sum() for g in slopes if g is not None); loss.backward(); opt.step()
opt.zero_grad(); scaler.scale(cost(net(x), y)).backward(); scaler.unscale_(opt); nn.utils.clip_grad_value_(net.parameters(), .1); scaler.step(opt); scaler.update(); log(scaler.get_scale())
opt.zero_grad(); scaler.scale(cost(net(x), y)).backward(); log(scaler.step(opt)); scaler.update(.5); log(scaler.state_dict())
"""  # noqa: E501

STATEMENTS = """
loss = cost(net(x), y)  3
loss.backward()  3
loss.backward(retain_graph=True)
opt.step()  3
opt.zero_grad()  2
opt.zero_grad(set_to_none=False)
sched.step()  6
sched.step(0.5)
log(sched.get_last_lr())
log(sorted(sched.state_dict().items(), key=str))
sched.load_state_dict(copy.deepcopy(sched.state_dict()))
sched = optim.lr_scheduler.{scheduler}
sched = optim.lr_scheduler.{scheduler}
net.eval()
net.train()
net[{i}].eval()
net[{i}].requires_grad_(False)
net.requires_grad_()
net = copy.deepcopy(net)
net, opt = copy.deepcopy((net, opt))
opt = copy.deepcopy(opt)
opt = optim.{optimizer}
saved = net.state_dict()
saved = copy.deepcopy(net.state_dict())
saved = net.state_dict(prefix='a.', keep_vars=True); log(list(saved))
saved = through_file(net.state_dict(), weights_only=True)
log(net.load_state_dict(saved))
log(net.load_state_dict(saved, strict=False))
log(net.load_state_dict(saved, assign=True))
log(net.load_state_dict(dict(list(saved.items())[::2]), strict=False))
state = opt.state_dict(); log(state['param_groups'])
state = copy.deepcopy(opt.state_dict())
state = through_file(opt.state_dict(), weights_only=False)
opt.load_state_dict(state)  2
net.to(t.float32); x = x.to(t.float32) if x.is_floating_point() else x
net.double(); x = x.double() if x.is_floating_point() else x
x = x * .9 if x.is_floating_point() else x.flip(0)
opt.add_param_group({{'params': [spare], 'lr': .3}})
opt.add_param_group({{'params': net[{i}].parameters()}})
for group in opt.param_groups: group['lr'] *= .5
for group in opt.param_groups: group['weight_decay'] = .05
opt.param_groups[0]['params'].pop()
del opt.state[next(iter(opt.state))]
opt.state.clear()
handle = net[{i}].register_forward_hook(lambda module, args, out: out * 2)
handle = net[{i}].register_forward_hook(lambda module, args, out: log(out.shape))
handle = net[{i}].register_forward_hook(lambda module, args, kwargs, out: log(len(kwargs)), with_kwargs=True, always_call=True)
handle = net[{i}].register_forward_pre_hook(lambda module, args: (args[0] + .1,) if args[0].is_floating_point() else None, prepend=True)
handle = net[{i}].register_full_backward_hook(lambda module, inputs, outputs: log(inputs, outputs))
handle = net[{i}].register_full_backward_hook(lambda module, inputs, outputs: tuple(None if g is None else g * .5 for g in inputs))
handle = net[{i}].register_full_backward_pre_hook(lambda module, outputs: tuple(g * 2 for g in outputs))
handle = net[{i}].register_state_dict_post_hook(lambda module, state, prefix, local: log(prefix, sorted(state)))
handle = net[{i}].register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: log(prefix, len(rest)))
handle = net[{i}].register_load_state_dict_post_hook(lambda module, keys: log(keys))
handle = next(net[{i}].parameters()).register_hook(lambda g: g * 2)
handle = next(net[{i}].parameters()).register_post_accumulate_grad_hook(lambda p: log(p.grad))
handle = next(net[{i}].parameters()).register_post_accumulate_grad_hook(lambda p: log(p.grad.mul_(.5)))
handle = opt.register_step_pre_hook(lambda opt, args, kwargs: log('before', len(args)))
handle = opt.register_step_post_hook(lambda opt, args, kwargs: log('behind'))
handle = opt.register_state_dict_post_hook(lambda opt, state: log(sorted(state)))
handle = opt.register_load_state_dict_pre_hook(lambda opt, state: log(sorted(state)))
handle.remove()
nn.utils.parametrizations.weight_norm(net[{i}])
nn.utils.parametrizations.weight_norm(net[{i}], dim=None)
nn.utils.weight_norm(net[{i}])
nn.utils.remove_weight_norm(net[{i}])
nn.utils.parametrize.register_parametrization(net[{i}], '{w}', Doubled())
nn.utils.parametrize.register_parametrization(net[{i}], '{w}', Odd(), unsafe=True)
nn.utils.parametrize.remove_parametrizations(net[{i}], '{w}')
nn.utils.parametrize.remove_parametrizations(net[{i}], '{w}', leave_parametrized=False)
log(nn.utils.parametrize.is_parametrized(net[{i}], '{w}'), nn.utils.parametrize.type_before_parametrizations(net[{i}]).__name__)
with nn.utils.parametrize.cached(): loss = cost(net(x), y); loss.backward()
prune.l1_unstructured(net[{i}], '{w}', .3)
prune.ln_structured(net[{i}], '{w}', .5, 2, 0)
prune.custom_from_mask(net[{i}], '{w}', t.ones(()).expand(net[{i}].{w}.shape))
prune.remove(net[{i}], '{w}')
log(prune.is_pruned(net))
net[{i}].{w}.data.mul_(.9)
with t.no_grad(): net[{i}].{w}.add_(.1)
net[{i}].{w}.data = net[{i}].{w}.data * .5
net[{i}].{w} = nn.Parameter(net[{i}].{w} * 2)
net[{i}].{w} = net[{j}].{w}
net[{i}].{w} = None
net[{i}].{w} = t.ones(2)
del net[{i}].{w}
net[{i}].{w}.grad = None
net[{i}].{w}.grad = t.ones_like(net[{i}].{w})
net[{i}].{w}.grad.fill_(float('inf'))
net[{i}].{w}.requires_grad = False
net[{i}].register_buffer('extra', t.ones(2), persistent=False)
net[{i}].register_buffer('more', None)
net[{i}].register_parameter('extra', nn.Parameter(t.ones(2)))
net[{i}].add_module('inner', nn.Linear(2, 2)); fill(net[{i}])
net[{i}] = nn.Tanh()
net.append(fill(nn.Linear(3, 3)))
net.insert({i}, Does(lambda x: x * 1))
net.extend([nn.Tanh(), fill(nn.Linear(3, 3))])
net.pop(-1)
del net[{i}]
net = net[:{i} or 1]
net = nn.Sequential(net, nn.Tanh())
net[{i}], net[{j}] = net[{j}], net[{i}]
fill(net)
net.apply(lambda module: log(type(module).__name__))
net.apply(lambda module: module.weight.data.mul_(.9) if isinstance(module, nn.Linear) else None)
net.zero_grad(set_to_none=False)
vector = nn.utils.parameters_to_vector(net.parameters()); nn.utils.vector_to_parameters(vector * .9, net.parameters()); log(vector)
slopes = t.func.grad(lambda p: cost(t.func.functional_call(net, p, (x,)), y))(dict(net.named_parameters())); log(slopes)
loss = cost(t.func.functional_call(net, {{name: p * 2 for name, p in net.named_parameters()}}, (x,)), y); loss.backward()
loss = cost(t.func.functional_call(net, (dict(net.named_parameters()), dict(net.named_buffers())), (x,)), y)
log(t.func.vmap(lambda a, b: cost(net(a[None]), b[None]))(x, y))
stacked, buffers = t.func.stack_module_state([net, copy.deepcopy(net)]); log(t.func.vmap(lambda p, b: t.func.functional_call(net, (p, b), (x,)))(stacked, buffers))
log(t.func.jvp(lambda *a: t.func.functional_call(net, dict(zip(dict(net.named_parameters()), a)), (x,)), (*net.parameters(), spare), (*net.parameters(), spare)))
log(t.autograd.functional.vhp(lambda *a: cost(t.func.functional_call(net, dict(zip(dict(net.named_parameters()), a)), (x,)), y), (*net.parameters(), spare), (*net.parameters(), spare)))
ema = optim.swa_utils.AveragedModel(net)
ema = optim.swa_utils.AveragedModel(net, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(.9), use_buffers=True)
ema.update_parameters(net); log(ema(x))
ema.update_parameters(net); log(ema.state_dict())
optim.swa_utils.update_bn([x, x], net)
net.load_state_dict(ema.module.state_dict())
sched = optim.swa_utils.SWALR(opt, .05, 2)
log(net(x))  2
with t.no_grad(): log(net(x))
with t.inference_mode(): log(net(x))
with t.autograd.graph.save_on_cpu(): loss = cost(net(x), y)
with t.autograd.graph.saved_tensors_hooks(lambda v: v * 1, lambda v: v): loss = cost(net(x), y)
loss = cost(t.utils.checkpoint.checkpoint_sequential(net, min(2, len(net)), x, use_reentrant=False), y)
loss = cost(t.utils.checkpoint.checkpoint(net, x, use_reentrant=False), y)
with t.autograd.set_detect_anomaly(True, check_nan=False): loss = cost(net(x), y); loss.backward()
log(repr(net))
log(repr(opt))
log([name for name, _ in net.named_modules()], [name for name, _ in net.named_children()])
log([name for name, _ in net.named_modules(remove_duplicate=False)])
log([name for name, _ in net.named_parameters(remove_duplicate=False)], [name for name, _ in net.named_buffers()])
log(net.get_submodule('0'), net.get_parameter('{i}.{w}'))
log({i} in net, len(net), [type(layer).__name__ for layer in reversed(net)] if hasattr(net, '__reversed__') else 0)
log(nn.utils.get_total_norm([p.grad for p in net.parameters() if p.grad is not None]))
nn.utils.clip_grads_with_norm_(net.parameters(), .3, t.tensor(2.))
nn.init.constant_(net[{i}].{w}, .25)
nn.init.zeros_(net[{i}].{w})
nn.init.eye_(net[{i}].{w})
nn.init.dirac_(net[{i}].{w})
net[{i}] = nn.SyncBatchNorm.convert_sync_batchnorm(net[{i}])
net.to(memory_format=t.channels_last)
net[{i}].half().double()
x.requires_grad_(); loss = cost(net(x), y); loss.backward(); log(x.grad); x = x.detach()
y = y.flip(0)
cost = nn.CrossEntropyLoss(label_smoothing=.1)
cost = nn.CrossEntropyLoss(weight=t.tensor([.1, 1., 2.]))
cost = lambda out, y: F.nll_loss(out.log_softmax(-1), y, reduction='sum')
cost = lambda out, y: F.mse_loss(out, F.one_hot(y, out.shape[-1]).to(out.dtype))
cost = nn.MultiMarginLoss(margin=.5)
"""  # noqa: E501
