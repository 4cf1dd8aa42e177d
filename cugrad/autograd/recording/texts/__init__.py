"""The texts of rows: what they do to Tensors in the common case, as code in a straight line.

`rows.py` writes the function of a row, and `changes.py` that of its change in place; begin with the
first. `nodes.py` writes how a node is made, `known.py` how a kept launch is found by the forms that
tensors have, `lists.py` what rows of lists do. `autograd/recording/fast.py` compiles
them.
"""
