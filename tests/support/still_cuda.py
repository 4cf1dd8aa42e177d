"""CuPy on a driver that does nothing: what the host does before a launch, without a GPU.

CuPy's modules find one another's C functions in a table of each, by name. Before they look, those
of the driver and the runtime that reach the device are exchanged for C functions that return at
once. All else is CuPy's own: its arrays, memory pool, ufuncs, reductions and launches. Memory is
the host's, and is not read. The last launch is known, and what the kernel would have been told.
"""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["last_launch", "still"]

SOURCE = """\
#include <Python.h>
#include <stdlib.h>
#include <string.h>
PyObject* nothing(void) { Py_RETURN_NONE; }
int zero(void) { return 0; }
int one(void) { return 1; }
int attribute(int which) { return which == 75 ? 9 : which == 76 ? 0 : 1024; }
intptr_t handle(void) { return 1; }
intptr_t memory(size_t size) {
    void* block = NULL;
    return posix_memalign(&block, 512, size ? size : 1) ? 0 : (intptr_t)block;
}
long long last[9];
int size = 0;  // of what the kernel is told, which is copied to `told`
char told[4096];
PyObject* launch(intptr_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                 unsigned bz, unsigned shared, intptr_t stream, void** arguments, intptr_t extra) {
    long long numbers[9] = {function, gx, gy, gz, bx, by, bz, shared, stream};
    memcpy(last, numbers, sizeof last);
    if (size) memcpy(told, arguments[0], size);
    Py_RETURN_NONE;
}
static PyObject* launch_of_python(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    long long n[11];
    for (int k = 0; k < 11; ++k) {
        n[k] = count == 11 ? PyLong_AsLongLong(args[k]) : -1;
        if (n[k] == -1) return PyErr_Format(PyExc_TypeError, "argument %d is no number", k);
    }
    if (!n[0]) return PyErr_Format(PyExc_RuntimeError, "CUDA_ERROR_INVALID_HANDLE");
    return launch(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], (void**)n[9], n[10]);
}
static PyMethodDef method = {
    "launchKernel", (PyCFunction)(void*)launch_of_python, METH_FASTCALL, 0};
PyObject* python_launch(void) { return PyCFunction_New(&method, NULL); }
"""
# By module and name: which of these stands in. All others that answer an object do nothing.
STAND_INS = {
    "driver": {"moduleLoad": "handle", "moduleLoadData": "handle", "moduleGetFunction": "handle",
               "ctxGetCurrent": "handle", "ctxGetDevice": "zero", "funcGetAttribute": "attribute",
               "streamGetCtx": "handle", "occupancyMaxActiveBlocksPerMultiprocessor": "one",
               "launchKernel": "launch"},
    "runtime": {"getDevice": "zero", "getDeviceCount": "one", "deviceGetAttribute": "attribute",
                "streamCreate": "handle", "streamCreateWithFlags": "handle",
                "streamCreateWithPriority": "handle", "eventCreate": "handle",
                "eventCreateWithFlags": "handle", "streamIsCapturing": "zero",
                "streamGetFlags": "zero", "malloc": "memory", "mallocAsync": "memory",
                "hostAlloc": "memory"},
}  # fmt: skip
ANSWERS = {"zero": 0, "one": 1, "handle": 1}
LEFT = {"getDeviceProperties", "pointerGetAttributes"}
CUBLAS = "COMPUTE_32F COMPUTE_64F COMPUTE_32F_FAST_TF32 OP_N OP_T GEMM_DEFAULT"

_library: Any = None
_forms: list[Any] = []  # of the tables' entries, which refer to them


def still() -> None:
    """Makes all that reaches a device do nothing, in this process; before CuPy is imported."""
    global _library
    assert "cupy" not in sys.modules, "CuPy has been imported, and has found its functions"
    _library = _compiled()
    for name, stand_ins in STAND_INS.items():
        _exchange(importlib.import_module(f"cupy_backends.cuda.api.{name}"), stand_ins)
    import cupy

    module = cupy.cuda.function.Module()
    module.load(b"nothing")
    cupy.cuda.compiler._compile_module_with_cache = lambda *args, **kwargs: module
    cupy.cuda.get_cublas_handle = lambda: 0
    cublas: Any = ModuleType("cublas")
    for name in CUBLAS.split():
        setattr(cublas, f"CUBLAS_{name}", 0)
    cublas.gemmEx = cublas.gemmStridedBatchedEx = lambda *args: None
    sys.modules["cupy_backends.cuda.libs.cublas"] = cublas
    sys.modules["cupy_backends.cuda.libs"].cublas = cublas  # type: ignore[attr-defined]


def last_launch(size: int) -> tuple[tuple[int, ...], bytes]:
    """Function, grid, block, shared memory and stream of the last launch, and what it was told:
    so many bytes, of which launches from now on are a copy.
    """
    numbers = tuple((ctypes.c_longlong * 9).in_dll(_library, "last"))
    told = bytes((ctypes.c_char * 4096).in_dll(_library, "told"))[:size]
    ctypes.c_int.in_dll(_library, "size").value = size
    return numbers, told


def _compiled() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "still.c"), Path(folder, "still.so")
        source.write_text(SOURCE)
        headers = "-I" + sysconfig.get_paths()["include"]
        command = ["cc", "-O2", "-shared", "-fPIC", headers, str(source), "-o", str(binary)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(binary))


def _exchange(module: Any, stand_ins: dict[str, str]) -> None:
    """Puts functions of the library into a module's table, and before Python's callers."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    table = module.__pyx_capi__
    for name, entry in list(table.items()):
        form = api.PyCapsule_GetName(entry)  # how the function is declared
        stand_in = stand_ins.get(name)
        if stand_in is None and form.startswith(b"PyObject *") and name not in LEFT:
            stand_in = "nothing"
        if stand_in is None:
            continue
        _forms.append(ctypes.create_string_buffer(form))
        function = ctypes.cast(getattr(_library, stand_in), ctypes.c_void_p)
        table[name] = api.PyCapsule_New(function, ctypes.addressof(_forms[-1]), None)
        setattr(module, name, _python(stand_in))


def _python(stand_in: str) -> Any:
    """What Python calls in a function's place."""
    if stand_in == "launch":
        return ctypes.PYFUNCTYPE(ctypes.py_object)(("python_launch", _library))()
    answer = ANSWERS.get(stand_in)
    return lambda *args, **kwargs: answer
