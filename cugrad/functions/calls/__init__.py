"""What all public functions do with their arguments and results.

`arguments.py` checks arguments, `declaring.py` sees that a name has one declaration, `out.py` adds
`out=` and NumPy's names of arguments, `mistakes.py` says which argument had a wrong type,
`signatures.py` what `help` shows, and `return_types.py` has tuples with names. Begin with
`arguments.py`. All rooms of functions import from here.
"""

from __future__ import annotations
