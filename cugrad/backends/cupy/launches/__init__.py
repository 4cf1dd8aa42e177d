"""How kernels are started: by the driver, and again for operands of the same form.

`starting.py` starts a kernel of one argument. `straight.py` writes functions that do again what was
done for operands of some form, in a straight line; begin there. `rows.py` finds those of a row, and
of its gradients, by the form of their arguments. `captured.py` calls cuBLAS while a graph is
captured, where CuPy refuses to. The rooms `fused` and `written` say what to start.
"""
