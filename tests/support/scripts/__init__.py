"""Random training scripts, run beside PyTorch: modules, optimizers, schedulers, and what users do
with them between the steps of a loop.

`drawing.py` draws a script, a list of statements: a network of `networks.py`, an optimizer, and
some of `table.py`. `running.py` runs one in both libraries, and compares all that they have after
each statement: parameters, gradients, buffers, states of the optimizer, the keys of state dicts,
what was printed, and the types of errors. `python -m tests.support.scripts --seconds 600` looks for
news, with `--device` on another device than the host; what differs is shortened until each
statement is needed.
"""
