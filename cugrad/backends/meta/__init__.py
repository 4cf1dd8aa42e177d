"""Arrays without values: shapes, strides and dtypes of a computation, and no memory for them.

`arrays.py` has the array and says how a function of NumPy's is run on arrays that have none: begin
there. `namespace.py` is its `xp`, `backend.py` the device "meta".
"""
