"""libcublasLt for `fake_cuda`: C functions that do what its manual says, and refuse the rest.

They are called through ctypes, as the library's are, so arguments are converted as for it. What is
checked here and not by the library: that sizes fit one another, that memory is aligned as was
promised, and that the algorithm was chosen for just these layouts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support import fake_cublas, fake_cuda

SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15  # cublasStatus_t
HANDLE = fake_cublas.HANDLE

# By attribute: its name here, and its C type, in the words of cublasLt.h.
DESCRIPTION = {3: ("transa", c_int32), 4: ("transb", c_int32), 7: ("epilogue", c_uint32),
               8: ("bias", c_uint64)}  # fmt: skip
LAYOUT = {5: ("batch", c_int32), 6: ("stride", c_int64)}
PREFERENCE = {1: ("workspace", c_uint64), 5: ("a", c_uint32), 6: ("b", c_uint32),
              7: ("c", c_uint32), 8: ("d", c_uint32)}  # fmt: skip
EPILOGUES = {1, 4, 512}
KINDS = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}
COMPUTES = {68: {0, 2, 14}, 77: {0}, 70: {1}}  # by cublasComputeType_t, the cudaDataType_t
VOID = c_void_p


class FakeLt:
    """The functions of the library by name, and what has been called: `calls` are the products."""

    def __init__(self, supported: bool = True, workspace: int = 64) -> None:
        self.objects: dict[int, SimpleNamespace] = {}
        self.algorithms: dict[int, Any] = {}
        self.calls: list[SimpleNamespace] = []
        self.supported, self.workspace, self.searches = supported, workspace, 0
        create, setter = [VOID], [VOID, c_int, VOID, c_size_t]
        functions: dict[str, tuple[Callable[..., int], list[Any]]] = {
            "MatmulDescCreate": (self.new_description, [VOID, c_int, c_int]),
            "MatmulDescSetAttribute": (self.setter(DESCRIPTION), setter),
            "MatmulDescDestroy": (self.destroy, [VOID]),
            "MatrixLayoutCreate": (self.new_layout, [VOID, c_int, c_uint64, c_uint64, c_int64]),
            "MatrixLayoutSetAttribute": (self.setter(LAYOUT), setter),
            "MatrixLayoutDestroy": (self.destroy, [VOID]),
            "MatmulPreferenceCreate": (lambda at: self.create(at, {}), create),
            "MatmulPreferenceSetAttribute": (self.setter(PREFERENCE), setter),
            "MatmulPreferenceDestroy": (self.destroy, [VOID]),
            "MatmulAlgoGetHeuristic": (self.heuristic, [*[VOID] * 7, c_int, VOID, VOID]),
            "Matmul": (self.matmul, [*[VOID] * 14, c_size_t, VOID]),
        }  # fmt: skip
        self.errors: list[BaseException] = []  # ctypes prints and forgets those of a callback
        for name, (function, signature) in functions.items():
            kind = ctypes.CFUNCTYPE(c_int, *signature)
            setattr(self, f"cublasLt{name}", kind(self.noting(function)))

    def noting(self, function: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any) -> int:
            try:
                return function(*args)
            except BaseException as error:
                self.errors.append(error)
                return INVALID_VALUE

        return call

    def create(self, at: int, fields: dict[str, Any]) -> int:
        key = 4096 + 16 * len(self.objects)
        self.objects[key] = SimpleNamespace(**fields, alive=True)
        c_uint64.from_address(at).value = key
        return SUCCESS

    def destroy(self, key: int) -> int:
        assert self.objects[key].alive, "destroyed twice"
        self.objects[key].alive = False
        return SUCCESS

    def found(self, key: int) -> SimpleNamespace:
        assert self.objects[key].alive, "used after it was destroyed"
        return self.objects[key]

    def new_description(self, at: int, compute: int, scale: int) -> int:
        assert compute in COMPUTES and scale == (1 if compute == 70 else 0)
        fields = {"compute": compute, "transa": 0, "transb": 0, "epilogue": 1, "bias": 0}
        return self.create(at, fields)

    def new_layout(self, at: int, kind: int, rows: int, columns: int, ld: int) -> int:
        assert kind in KINDS and rows > 0 and columns > 0 and ld >= rows
        fields = {"kind": kind, "rows": rows, "columns": columns, "ld": ld}
        return self.create(at, {**fields, "batch": 1, "stride": 0})

    def setter(self, attributes: dict[int, tuple[str, Any]]) -> Callable[..., int]:
        def set_attribute(key: int, attribute: int, at: int, size: int) -> int:
            name, kind = attributes[attribute]
            assert size == ctypes.sizeof(kind), f"{name} has {ctypes.sizeof(kind)} bytes"
            setattr(self.found(key), name, kind.from_address(at).value)
            return SUCCESS

        return set_attribute

    def heuristic(
        self, handle: int, description: int, a: int, b: int, c: int, d: int, preference: int,
        asked: int, results: int, count: int,
    ) -> int:  # fmt: skip
        self.searches += 1
        assert handle == HANDLE and asked == 1
        how, told = self.found(description), self.found(preference)
        first, second, third, result = (self.found(key) for key in (a, b, c, d))
        self.sizes(how, first, second, result)
        assert third is result and told.workspace >= self.workspace
        assert how.epilogue in EPILOGUES and first.kind == second.kind == result.kind
        assert first.kind in COMPUTES[how.compute]
        if not self.supported or (how.compute == 70 and how.epilogue != 1):
            return NOT_SUPPORTED
        number = len(self.algorithms) + 1
        form = how.compute, how.epilogue, how.transa, how.transb, a, b, d
        self.algorithms[number] = form, (told.a, told.b, told.c, told.d)
        for k in range(8):  # cublasLtMatmulAlgo_t
            c_uint64.from_address(results + 8 * k).value = number * 1000 + k
        c_size_t.from_address(results + 64).value = self.workspace
        c_int.from_address(results + 72).value = SUCCESS
        c_float.from_address(results + 76).value = 1.0
        c_int.from_address(count).value = 1
        return SUCCESS

    @staticmethod
    def sizes(how: Any, first: Any, second: Any, result: Any) -> tuple[int, int, int]:
        m, k = (first.columns, first.rows) if how.transa else (first.rows, first.columns)
        inner, n = (second.columns, second.rows) if how.transb else (second.rows, second.columns)
        assert (m, n, k) == (result.rows, result.columns, inner)
        assert first.batch == second.batch == result.batch
        return m, n, k

    def matmul(
        self, handle: int, description: int, alpha: int, a: int, layout_a: int, b: int,
        layout_b: int, beta: int, c: int, layout_c: int, d: int, layout_d: int, algorithm: int,
        workspace: int | None, size: int, stream: int | None,
    ) -> int:  # fmt: skip
        how = self.found(description)
        first, second, result = (self.found(key) for key in (layout_a, layout_b, layout_d))
        data = [c_uint64.from_address(algorithm + 8 * k).value for k in range(8)]
        number = data[0] // 1000
        assert data == [number * 1000 + k for k in range(8)]
        form, promised = self.algorithms[number]
        assert form == (how.compute, how.epilogue, how.transa, how.transb, layout_a, layout_b,
                        layout_d)  # fmt: skip
        vector = how.bias if how.epilogue != 1 else 0
        for pointer, multiple in zip((a, b, c, d, vector), (*promised, promised[3])):
            assert pointer % multiple == 0, "not as aligned as was said"
        assert handle == HANDLE and c == d and layout_c == layout_d
        assert size >= self.workspace and bool(workspace) == bool(size)
        assert (stream or 0) == fake_cuda.fake_streams.current().ptr
        kind: Any = np.float64 if how.compute == 70 else np.float32
        assert kind.__name__.startswith("float")
        one, zero = (np.ctypeslib.as_array((ctypes.c_byte * kind().itemsize).from_address(x))
                     .view(kind)[0] for x in (alpha, beta))  # fmt: skip
        assert (one, zero) == (1, 0)
        self.calls.append(
            SimpleNamespace(epilogue=how.epilogue, compute=how.compute, bias=how.bias)
        )
        told = [SimpleNamespace(**vars(x)) for x in (how, first, second, result)]
        fake_cuda.captured(self.multiply, changes=True)(*told, (a, b, d))
        return SUCCESS

    def multiply(self, how: Any, first: Any, second: Any, result: Any, at: Any) -> None:
        wide = np.float64 if how.compute == 70 else np.float32
        x, y, out = (
            fake_cublas.matrices(p, t.kind, (t.rows, t.columns), t.ld, t.stride, t.batch)
            for p, t in zip(at, (first, second, result), strict=True)
        )
        x, y = x.astype(wide), y.astype(wide)
        x = x.swapaxes(1, 2) if how.transa else x
        y = y.swapaxes(1, 2) if how.transb else y
        product = x @ y
        if how.epilogue in (4, 512):
            assert how.bias, "an epilogue without its vector"
            count = result.rows if how.epilogue == 4 else result.columns
            vector = fake_cublas.matrices(how.bias, result.kind, (count, 1), count, 0, 1)[0, :, 0]
            if how.epilogue == 4:
                product = product + vector.astype(wide)[None, :, None]
            else:
                assert result.batch == 1, "sums of one matrix"
                vector[...] = y[0].sum(0)
        out[...] = product
