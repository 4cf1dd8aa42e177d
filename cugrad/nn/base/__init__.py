"""What Module is made of: the tree of named parts, the call with its hooks, the state dict.

`modules.module.Module` is a `calling.Called`, which is a `tree.Tree`; `state` collects and loads,
`global_hooks` and `backward_hooks` are of the call, and `dims` is for layers over one to three
dims. Begin with `tree`. Only nn imports from here.
"""
