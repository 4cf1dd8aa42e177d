"""Arrays of NumPy: the backend of the CPU.

`backend` is what the protocol asks for, and the place to begin reading; `rows` says how a row
runs: by `blocks`, or as `written`; `half`, `index`, `special`, `erf`, `sums` and `threads` are
what NumPy does not have, or is slow at.
Imported from outside: `backend` alone, and `threads` by those who count them.
"""
