"""Weights, gradients and optimizer states that live where there is room, and come when asked for.

`context` has `offload_states`: begin there. `following` places what a model has, and looks again
behind each step. A tensor that is placed has a `Home`, which knows where
its bytes are and moves them by the engine of `offloading`. `placed` is how it is noticed that a
tensor's array is asked for. A `Window` bounds how many bytes of one kind are on the device, and
knows the order in which they are used. `steps` is the optimizer's step, on the host or through the
device; `within_backward` takes it as soon as a gradient is whole. `reporting` tells what a step
took. `memory` alone imports from here.
"""
