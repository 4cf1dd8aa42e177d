"""The examples of PyTorch's documents on torch.autograd, as they stand there, as doctests.

Where a document only sketches (`...`, an undefined `model`), the least that makes it run is put in
between the document's own lines; where it prints drawn numbers, they are asked a question instead.
`DEVICE` stands for "cuda" where there is none. An example's id names its document and its subject.
"""

from __future__ import annotations

PACKAGE = "torch.autograd"
GRAPH = "torch.autograd.graph"
HOOKS = "tutorial on saved-tensor hooks"
CHECKPOINT = "torch.utils.checkpoint"

EXAMPLES: dict[str, str] = {}

# The package --------------------------------------------------------------------------------------

EXAMPLES[f"{PACKAGE}: gradients are accumulated anew"] = """
>>> model = torch.nn.Linear(2, 1)
>>> for iteration in range(3):
...     loss = model(torch.ones(1, 2)).sum()
...     for param in model.parameters():
...         param.grad = None
...     loss.backward()
>>> model.weight.grad
tensor([[1., 1.]])
"""

EXAMPLES[f"{PACKAGE}: gradient layouts"] = """
>>> param = torch.ones(2, 3).t().requires_grad_()
>>> (param * 2).sum().backward()
>>> param.grad.stride() == param.stride()  # 1. non-overlapping and dense
True
>>> wide = torch.ones(2, 1).expand(2, 3).requires_grad_()
>>> (wide * 2).sum().backward()
>>> wide.grad.stride()  # 2. otherwise rowmajor-contiguous
(3, 1)
>>> before = param.grad
>>> (param * 2).sum().backward()
>>> param.grad is before, param.grad.stride()  # 3. in-place, which preserves its strides
(True, (1, 3))
>>> import warnings
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore")
...     (param * 2).sum().backward(create_graph=True)
>>> param.grad is before  # 4. a new tensor .grad + new grad
False
>>> param.grad = torch.zeros(2, 3).t().contiguous()  # manual gradient layouts
>>> (param * 2).sum().backward()
>>> param.grad.stride(), param.grad[0].tolist()
((2, 1), [2.0, 2.0])
"""

EXAMPLES[f"{PACKAGE}: in-place correctness checks"] = """
>>> x = torch.ones(3, requires_grad=True)
>>> y = x.exp()
>>> _ = y.add_(1)
>>> try:
...     y.sum().backward()
... except RuntimeError as error:
...     print(str(error)[:94])
one of the variables needed for gradient computation has been modified by an inplace operation
"""

EXAMPLES[f"{PACKAGE}: Variable (deprecated)"] = """
>>> from torch.autograd import Variable
>>> tensor = torch.ones(2)
>>> type(Variable(tensor)) is torch.Tensor, Variable(tensor, True).requires_grad
(True, True)
>>> var = Variable(tensor, requires_grad=True)
>>> var.data.requires_grad, var.detach().requires_grad
(False, False)
>>> handle = var.register_hook(lambda grad: grad * 2)
>>> var.sum().backward()
>>> var.grad
tensor([2., 2.])
>>> autograd_tensor = torch.randn((2, 3, 4), requires_grad=True)
>>> autograd_tensor.requires_grad, autograd_tensor.shape
(True, torch.Size([2, 3, 4]))
"""

EXAMPLES[f"{PACKAGE}: Function"] = """
>>> from torch.autograd import Function
>>> class Exp(Function):
...     @staticmethod
...     def forward(ctx, i):
...         result = i.exp()
...         ctx.save_for_backward(result)
...         return result
...
...     @staticmethod
...     def backward(ctx, grad_output):
...         result, = ctx.saved_tensors
...         return grad_output * result
...
>>> # Use it by calling the apply method:
>>> input = torch.zeros(2, requires_grad=True)
>>> output = Exp.apply(input)
>>> output.sum().backward()
>>> input.grad
tensor([1., 1.])
"""

EXAMPLES[f"{PACKAGE}: profile"] = """
>>> x = torch.randn((1, 1), requires_grad=True)
>>> with torch.autograd.profiler.profile() as prof:
...     for _ in range(100):  # any normal python code, really!
...         y = x ** 2
...         y.backward()
>>> table = prof.key_averages().table(sort_by="self_cpu_time_total")
>>> all(name in table for name in ("mul", "pow", "PowBackward0", "AccumulateGrad"))
True
"""

EXAMPLES[f"{PACKAGE}: emit_nvtx"] = """
>>> model, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
>>> with torch.cuda.profiler.profile():
...     _ = model(x)  # Warmup CUDA memory allocator and profiler
...     with torch.autograd.profiler.emit_nvtx():
...         _ = model(x)
"""

EXAMPLES[f"{PACKAGE}: emit_itt"] = """
>>> model, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
>>> with torch.autograd.profiler.emit_itt():
...     _ = model(x)
"""

EXAMPLES[f"{PACKAGE}: anomaly detection"] = """
>>> import torch
>>> from torch import autograd
>>> class MyFunc(autograd.Function):
...     @staticmethod
...     def forward(ctx, inp):
...         return inp.clone()
...     @staticmethod
...     def backward(ctx, gO):
...         # Error during the backward pass
...         raise RuntimeError("Some error in backward")
...         return gO.clone()
>>> def run_fn(a):
...     out = MyFunc.apply(a)
...     return out.sum()
>>> inp = torch.rand(10, 10, requires_grad=True)
>>> out = run_fn(inp)
>>> out.backward()
Traceback (most recent call last):
RuntimeError: Some error in backward
>>> import warnings
>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always")
...     with autograd.detect_anomaly():
...         inp = torch.rand(10, 10, requires_grad=True)
...         out = run_fn(inp)
...         try:
...             out.backward()
...         except RuntimeError as error:
...             print(error)
Some error in backward
>>> text = str(caught[-1].message)
>>> "Traceback of forward call that caused the error" in text
True
>>> "out = run_fn(inp)" in text or "in run_fn" in text
True
"""

EXAMPLES[f"{PACKAGE}: what a node saved"] = """
>>> a = torch.tensor([0., 0., 0.], requires_grad=True)
>>> b = a.exp()
>>> print(isinstance(b.grad_fn, torch.autograd.graph.Node))
True
>>> sorted({'__call__', '_raw_saved_result', '_saved_result', 'metadata', 'name', 'next_functions',
...         'register_hook', 'register_prehook', 'requires_grad'} - set(dir(b.grad_fn)))
[]
>>> b.grad_fn(torch.ones(3))
tensor([1., 1., 1.], grad_fn=<MulBackward0>)
>>> print(torch.allclose(b.grad_fn._saved_result, b))
True
"""

# torch.autograd.graph -----------------------------------------------------------------------------

EXAMPLES[f"{GRAPH}: Node.name"] = """
>>> import torch
>>> a = torch.tensor([0., 0., 0.], requires_grad=True)
>>> b = a.clone()
>>> assert isinstance(b.grad_fn, torch.autograd.graph.Node)
>>> print(b.grad_fn.name())
CloneBackward0
"""

EXAMPLES[f"{GRAPH}: Node.register_hook"] = """
>>> import torch
>>> a = torch.tensor([0., 0., 0.], requires_grad=True)
>>> b = a.clone()
>>> assert isinstance(b.grad_fn, torch.autograd.graph.Node)
>>> handle = b.grad_fn.register_hook(lambda gI, gO: (gO[0] * 2,))
>>> b.sum().backward(retain_graph=True)
>>> print(a.grad)
tensor([2., 2., 2.])
>>> handle.remove() # Removes the hook
>>> a.grad = None
>>> b.sum().backward(retain_graph=True)
>>> print(a.grad)
tensor([1., 1., 1.])
"""

EXAMPLES[f"{GRAPH}: Node.register_prehook"] = """
>>> a = torch.tensor([0., 0., 0.], requires_grad=True)
>>> b = a.clone()
>>> assert isinstance(b.grad_fn, torch.autograd.graph.Node)
>>> handle = b.grad_fn.register_prehook(lambda gI: (gI[0] * 2,))
>>> b.sum().backward(retain_graph=True)
>>> print(a.grad)
tensor([2., 2., 2.])
>>> handle.remove()
>>> a.grad = None
>>> b.sum().backward(retain_graph=True)
>>> print(a.grad)
tensor([1., 1., 1.])
"""

EXAMPLES[f"{GRAPH}: get_gradient_edge"] = """
>>> from torch import autograd
>>> tensor = torch.ones(2, requires_grad=True)
>>> loss = (tensor * 3).sum()
>>> edge = autograd.graph.get_gradient_edge(tensor)
>>> edge.output_nr, [g.tolist() for g in autograd.grad(loss, edge, retain_graph=True)]
(0, [[3.0, 3.0]])
>>> autograd.grad(loss, tensor)
(tensor([3., 3.]),)
>>> torch.autograd.graph.get_gradient_edge(torch.ones(1))  # doctest: +ELLIPSIS
Traceback (most recent call last):
RuntimeError: It is not possible to get the gradient edge for a Tensor that does not require ...
"""

EXAMPLES[f"{GRAPH}: increment_version"] = """
>>> x = torch.ones(2)
>>> torch.autograd.graph.increment_version(x)
>>> x._version
1
"""

EXAMPLES[f"{GRAPH}: saved_tensors_hooks"] = """
>>> def pack_hook(x):
...     print("Packing", x)
...     return x
>>>
>>> def unpack_hook(x):
...     print("Unpacking", x)
...     return x
>>>
>>> a = torch.ones(5, requires_grad=True)
>>> b = torch.ones(5, requires_grad=True) * 2
>>> with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
...     y = a * b
Packing tensor([2., 2., 2., 2., 2.], grad_fn=<MulBackward0>)
Packing tensor([1., 1., 1., 1., 1.], requires_grad=True)
>>> y.sum().backward()  # in PyTorch's own order, of which the documents have both
Unpacking tensor([2., 2., 2., 2., 2.], grad_fn=<MulBackward0>)
Unpacking tensor([1., 1., 1., 1., 1.], requires_grad=True)
"""

EXAMPLES[f"{GRAPH}: save_on_cpu"] = """
>>> a = torch.randn(5, requires_grad=True, device=DEVICE)
>>> b = torch.randn(5, requires_grad=True, device=DEVICE)
>>> c = torch.randn(5, requires_grad=True, device=DEVICE)
>>>
>>> def f(a, b, c):
...     prod_1 = a * b           # a and b are saved on GPU
...     with torch.autograd.graph.save_on_cpu():
...         prod_2 = prod_1 * c  # prod_1 and c are saved on CPU
...     y = prod_2 * a           # prod_2 and a are saved on GPU
...     return y
>>>
>>> y = f(a, b, c)
>>> want, leaves = (a * b * a).detach().clone(), (a, b, c)
>>> del a, b, c  # for illustration only
>>> # the content of a, b, and prod_2 are still alive on GPU
>>> # the content of prod_1 and c only live on CPU
>>> y.sum().backward()  # all CPU tensors are moved back to GPU, for backward
>>> # all intermediary tensors are released (deleted) after the call to backward
>>> torch.allclose(leaves[2].grad, want)
True
"""

EXAMPLES[f"{GRAPH}: disable_saved_tensors_hooks"] = """
>>> message = "saved tensors default hooks are disabled"
>>> with torch.autograd.graph.disable_saved_tensors_hooks(message):
...     # Raises RuntimeError: saved tensors default hooks are disabled
...     with torch.autograd.graph.save_on_cpu():
...         pass
Traceback (most recent call last):
RuntimeError: saved tensors default hooks are disabled
"""

EXAMPLES[f"{GRAPH}: register_multi_grad_hook"] = """
>>> import torch
>>>
>>> a = torch.rand(2, 3, requires_grad=True)
>>> b = torch.rand(2, 3, requires_grad=True)
>>> c = a * b
>>> d = a * b
>>>
>>> def fn(grads):
...     print([g is not None for g in grads])
...
>>> handle = torch.autograd.graph.register_multi_grad_hook((a, b, c, d), fn)
>>>
>>> c.sum().backward(retain_graph=True)
[True, True, True, False]
>>> c.sum().backward(inputs=(a,), retain_graph=True)
[True, False, True, False]
>>>
"""

EXAMPLES[f"{GRAPH}: allow_mutation_on_saved_tensors"] = """
>>> import torch
>>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
...     # forward
...     a = torch.ones(2, 3, requires_grad=True)
...     b = a.clone()
...     out = (b**2).sum()
...     b.sin_()
...     # backward
...     out.sum().backward()
...
tensor([[0.8415, 0.8415, 0.8415],
        [0.8415, 0.8415, 0.8415]], grad_fn=<SinBackward0>)
"""

# The tutorial -------------------------------------------------------------------------------------

EXAMPLES[f"{HOOKS}: saved tensors"] = """
>>> import torch
>>> a = torch.randn(5, requires_grad=True)
>>> b = torch.ones(5, requires_grad=True)
>>> y = a * b
>>> y.grad_fn._saved_self.equal(a)
True
>>> print(y.grad_fn._saved_other)
tensor([1., 1., 1., 1., 1.], requires_grad=True)
>>> def f(x):
...     return x * x
>>> x = torch.randn(5, requires_grad=True)
>>> y = f(f(f(x)))
>>> print(y.grad_fn._saved_self.equal(f(f(x))))
True
"""

EXAMPLES[f"{HOOKS}: the concept of packing and unpacking"] = """
>>> a = torch.randn(5, requires_grad=True)
>>> b = torch.ones(5, requires_grad=True)
>>> y = a * b
>>> print(y.grad_fn._saved_self is a)   # True
True
>>> print(y.grad_fn._saved_other is b)  # True
True
>>> a = torch.randn(5, requires_grad=True)
>>> y = torch.exp(a)
>>> print(y.grad_fn._saved_result.equal(y))  # True
True
>>> print(y.grad_fn._saved_result is y)      # False
False
"""

EXAMPLES[f"{HOOKS}: saved tensors hooks"] = """
>>> x = torch.randn(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(lambda x: x * 4, lambda x: x / 4):
...     y = torch.pow(x, 2)
>>> y.sum().backward()
>>> assert(x.grad.equal(2 * x))
"""

EXAMPLES[f"{HOOKS}: returning an int"] = """
>>> storage = []
>>> def pack(x):
...     storage.append(x)
...     return len(storage) - 1
>>> def unpack(x):
...     return storage[x]
>>> x = torch.randn(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
...     y = x * x
>>> y.sum().backward()
>>> assert(x.grad.equal(2 * x))
"""

EXAMPLES[f"{HOOKS}: returning a tuple"] = """
>>> def pack(x):
...     delta = torch.randn(*x.size())
...     return x - delta, lambda x: x + delta
>>> def unpack(packed):
...     x, f = packed
...     return f(x)
>>> x = torch.randn(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
...     y = x * x
>>> y.sum().backward()
>>> assert(torch.allclose(x.grad, 2 * x, atol=1e-6))
"""

EXAMPLES[f"{HOOKS}: returning a str"] = """
>>> x = torch.randn(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(lambda x: repr(x), lambda x: eval("torch." + x)):
...     y = x * x
>>> y.sum().backward()
>>> assert(torch.all(x.grad - 2 * x <= 1e-4))
"""

EXAMPLES[f"{HOOKS}: saving tensors to CPU"] = """
>>> def pack_hook(x):
...     return (x.device, x.cpu())
>>> def unpack_hook(packed):
...     device, tensor = packed
...     return tensor.to(device)
>>> x = torch.randn(5, requires_grad=True, device=DEVICE)
>>> with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
...     y = x * x
>>> y.sum().backward()
>>> torch.allclose(x.grad, (2 * x))
True
"""

EXAMPLES[f"{HOOKS}: a model that saves to CPU"] = """
>>> import torch.nn as nn
>>> class Model(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.w = nn.Parameter(torch.randn(5))
...
...     def forward(self, x):
...         with torch.autograd.graph.save_on_cpu(pin_memory=True):
...             # some computation
...             return self.w * x
>>> x = torch.randn(5)
>>> model = Model()
>>> loss = model(x).sum()
>>> loss.backward()
>>> model.w.grad.equal(x)
True
>>> class SaveToCpu(nn.Module):
...     def __init__(self, module):
...         super().__init__()
...         self.module = module
...
...     def forward(self, *args, **kwargs):
...         with torch.autograd.graph.save_on_cpu(pin_memory=True):
...             return self.module(*args, **kwargs)
>>> model = nn.Sequential(
...     nn.Linear(10, 100),
...     SaveToCpu(nn.Linear(100, 100)),
...     nn.Linear(100, 10),
... )
>>> x = torch.randn(10)
>>> loss = model(x).sum()
>>> loss.backward()
>>> all(p.grad is not None for p in model.parameters())
True
"""

DISK = """
>>> import uuid
>>> import os
>>> import tempfile
>>> import torch.nn as nn
>>> tmp_dir_obj = tempfile.TemporaryDirectory()
>>> tmp_dir = tmp_dir_obj.name
>>> class SelfDeletingTempFile():
...     def __init__(self):
...         self.name = os.path.join(tmp_dir, str(uuid.uuid4()))
...
...     def __del__(self):
...         os.remove(self.name)
"""

EXAMPLES[f"{HOOKS}: saving tensors to disk, incorrectly"] = (
    DISK
    + """
>>> # Naive version - HINT: Don't do this
>>> def pack_hook(tensor):
...     name = os.path.join(tmp_dir, str(uuid.uuid4()))
...     torch.save(tensor, name)
...     return name
>>> def unpack_hook(name):
...     return torch.load(name, weights_only=True)
>>> x = torch.ones(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
...     y = x.pow(2)
>>> y.sum().backward()
>>> x.grad.tolist(), len(os.listdir(tmp_dir))
([2.0, 2.0, 2.0, 2.0, 2.0], 1)
>>> # Incorrect version - HINT: Don't do this
>>> def unpack_hook(name):
...     tensor = torch.load(name, weights_only=True)
...     os.remove(name)
...     return tensor
>>> x = torch.ones(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
...     y = x.pow(2)
>>> print(y.grad_fn._saved_self)
tensor([1., 1., 1., 1., 1.], requires_grad=True)
>>> try:
...     print(y.grad_fn._saved_self)
...     print("Double access succeeded!")
... except:
...     print("Double access failed!")
Double access failed!
>>> tmp_dir_obj.cleanup()
"""
)

EXAMPLES[f"{HOOKS}: saving tensors to disk"] = (
    DISK
    + """
>>> def pack_hook(tensor):
...     temp_file = SelfDeletingTempFile()
...     torch.save(tensor, temp_file.name)
...     return temp_file
>>> def unpack_hook(temp_file):
...     return torch.load(temp_file.name, weights_only=True)
>>> x = torch.ones(5, requires_grad=True)
>>> with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
...     y = x.pow(2)
>>> print(y.grad_fn._saved_self)
tensor([1., 1., 1., 1., 1.], requires_grad=True)
>>> print(y.grad_fn._saved_self)
tensor([1., 1., 1., 1., 1.], requires_grad=True)
>>> len(os.listdir(tmp_dir))
1
>>> y.sum().backward()
>>> x.grad, os.listdir(tmp_dir)  # the output of pack_hook is deleted
(tensor([2., 2., 2., 2., 2.]), [])
>>> tmp_dir_obj.cleanup()
"""
)

EXAMPLES[f"{HOOKS}: large tensors on disk, with DataParallel"] = (
    DISK
    + """
>>> # Only save on disk tensors that have size >= 1000
>>> SAVE_ON_DISK_THRESHOLD = 1000
>>> def pack_hook(x):
...     if x.numel() < SAVE_ON_DISK_THRESHOLD:
...         return x
...     temp_file = SelfDeletingTempFile()
...     torch.save(x, temp_file.name)
...     return temp_file
>>> def unpack_hook(tensor_or_sctf):
...     if isinstance(tensor_or_sctf, torch.Tensor):
...         return tensor_or_sctf
...     return torch.load(tensor_or_sctf.name)
>>> class SaveToDisk(nn.Module):
...     def __init__(self, module):
...         super().__init__()
...         self.module = module
...
...     def forward(self, *args, **kwargs):
...         with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
...             return self.module(*args, **kwargs)
>>> class Model(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.w = nn.Parameter(torch.randn(SIZE))
...
...     def forward(self, x):
...         with torch.autograd.graph.save_on_cpu(pin_memory=True):
...             return self.w * x
>>> SIZE = 5
>>> net = nn.DataParallel(SaveToDisk(Model()))
>>> net(torch.ones(5)).sum().backward()
>>> net.module.module.w.grad.tolist()
[1.0, 1.0, 1.0, 1.0, 1.0]
>>> net = nn.DataParallel(SaveToDisk(nn.Linear(50, 30)))
>>> x = torch.ones(40, 50, requires_grad=True)
>>> y = net(x)
>>> len(os.listdir(tmp_dir))
2
>>> y.sum().backward()
>>> len(os.listdir(tmp_dir)), x.grad.shape
(0, torch.Size([40, 50]))
>>> tmp_dir_obj.cleanup()
"""
)

# Checkpoints --------------------------------------------------------------------------------------

EXAMPLES[f"{CHECKPOINT}: checkpoint"] = """
>>> from torch.utils.checkpoint import checkpoint
>>> x = torch.ones(3, requires_grad=True)
>>> y = checkpoint(torch.sin, x, use_reentrant=False)
>>> y.sum().backward()
>>> torch.allclose(x.grad, x.cos())
True
"""

EXAMPLES[f"{CHECKPOINT}: checkpoint_sequential"] = """
>>> from torch.utils.checkpoint import checkpoint_sequential
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
>>> input_var = torch.ones(2, 3, requires_grad=True)
>>> chunks = 2
>>> input_var = checkpoint_sequential(model, chunks, input_var, use_reentrant=False)
>>> input_var.sum().backward()
>>> all(p.grad is not None for p in model.parameters())
True
"""

EXAMPLES[f"{CHECKPOINT}: the document's own CheckpointFunction"] = """
>>> from torch.utils.checkpoint import check_backward_validity, detach_variable
>>> preserve_rng_state = True
>>> class CheckpointFunction(torch.autograd.Function):
...     @staticmethod
...     def forward(ctx, run_function, *args):
...         check_backward_validity(args)
...         ctx.run_function = run_function
...         if preserve_rng_state:
...             ctx.fwd_cpu_rng_state = torch.get_rng_state()
...             ctx.had_cuda_in_fwd = False
...             if torch.cuda._initialized:
...                 ctx.had_cuda_in_fwd = True
...                 ctx.fwd_cuda_rng_state = torch.cuda.get_rng_state()
...         ctx.save_for_backward(*args)
...         with torch.no_grad():
...             outputs = run_function(*args)
...         return outputs
...     @staticmethod
...     def backward(ctx, *args):
...         if not torch.autograd._is_checkpoint_valid():
...             raise RuntimeError("Checkpointing is not compatible with .grad()")
...         inputs = ctx.saved_tensors
...         rng_devices = [torch.cuda.current_device()] if ctx.had_cuda_in_fwd else []
...         with torch.random.fork_rng(devices=rng_devices, enabled=preserve_rng_state):
...             if preserve_rng_state:
...                 torch.set_rng_state(ctx.fwd_cpu_rng_state)
...                 if ctx.had_cuda_in_fwd:
...                     torch.cuda.set_rng_state(ctx.fwd_cuda_rng_state)
...             detached_inputs = detach_variable(inputs)
...             with torch.enable_grad():
...                 outputs = ctx.run_function(*detached_inputs)
...         if isinstance(outputs, torch.Tensor):
...             outputs = (outputs,)
...         torch.autograd.backward(outputs, args)
...         return (None,) + tuple(inp.grad for inp in detached_inputs)
>>> x = torch.ones(3, requires_grad=True)
>>> y = CheckpointFunction.apply(lambda x: x.sin().exp(), x)
>>> y.sum().backward()
>>> torch.allclose(x.grad, x.cos() * x.sin().exp())
True
>>> torch.autograd.grad(CheckpointFunction.apply(torch.sin, x).sum(), x)
Traceback (most recent call last):
RuntimeError: Checkpointing is not compatible with .grad()
"""

# What cannot run yet, and why: strict, so that an entry goes when its example runs.
NOT_YET: dict[str, str] = {}
