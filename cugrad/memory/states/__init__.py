"""Weights, gradients and optimizer states that live where there is room, and come when asked for.

`context` has `offload_states`: begin there. A tensor that is placed has a `Home`, which knows where
its bytes are and moves them by the engine of `offloading`. `placed` is how it is noticed that a
tensor's array is asked for. A `Window` bounds how many bytes of one kind are on the device, and
knows the order in which they are used. `steps` is the optimizer's step, on the host or through the
device; `moments` knows how early a parameter may have it; `early` takes it in backward, for good,
and `beforehand` so that it counts later. `reporting` tells what a step took. `memory` alone imports
from here.
"""
