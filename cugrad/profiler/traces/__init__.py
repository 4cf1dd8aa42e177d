"""Traces in files: of Nsight Systems, of nvprof, and in Chrome's format.

`nsys` and `nvprof` read databases (`database`), `chrome` reads JSON, `files` tells which one a file
is. Each gives spans and activities, as `profiler/correlation/attribution.py` defines them. Begin
with `files`. The profiler's other rooms import `files` and `database`.
"""
