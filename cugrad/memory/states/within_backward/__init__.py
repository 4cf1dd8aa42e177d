"""Steps of parameters that are taken while backward goes on: when they may be, and count.

`moments.py` knows when a gradient is whole: begin there. `early.py` takes steps that count at once,
`beforehand.py` those that count when the optimizer's own step comes to them. The room around it
alone imports from here.
"""
