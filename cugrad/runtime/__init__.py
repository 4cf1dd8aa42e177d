"""What every other room stands on: the state of threads, how modules are loaded, whose a frame is.

`kept.py` registers each piece of thread-local state, puts it back, and keeps what is changed whole
when an interrupt comes in the middle: begin there. `contexts.py` makes decorators of contexts,
`dispatching.py` sends calls to the class of an argument (`__torch_function__`), `frames.py` tells
the user's frames from the library's, `lazy.py` loads modules when a name of them is asked for, and
`absent.py` says why a name of PyTorch's is not here. All other rooms may import from all of them;
they import nothing but one another.
"""
