"""Recurrent layers as functions: torch.lstm, torch.gru, torch.rnn_tanh and their cells.

`stacks.py` has the functions, of several layers and directions: begin there. `layer.py` runs one
layer in one direction: as one node, by the loops over arrays in `scans.py`, or step by step with
the tensor functions in `steps.py`, where a graph of its steps is asked for. `nn.modules.rnn` calls
what is here; others import it as `torch.lstm` and so on.
"""
