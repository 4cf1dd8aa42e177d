"""Parameter, Buffer: tensors that a Module finds by itself, and those that have no shape yet."""

from __future__ import annotations

from typing import Any

from ..functions.calls.out import strided
from ..functions.creation.factories import empty
from ..runtime.absent import explain
from ..runtime.dispatching import overrides, plainly
from ..tensor import Tensor, make, tell_shared


class _Parameters(type):
    def __instancecheck__(cls, value: object) -> bool:
        if type.__instancecheck__(cls, value):
            return True
        is_marked = cls is Parameter and isinstance(value, Tensor)
        return is_marked and getattr(value, "_is_param", False)


class Parameter(Tensor, metaclass=_Parameters):
    """A leaf tensor that a Module registers when it is assigned as an attribute.

    `data` is any tensor, whose memory the parameter shares; only floating-point and complex
    data can require gradients, else RuntimeError. Where `data` is an instance of a subclass of
    Tensor, what is made is an instance of that, and counts as a Parameter.

    >>> import cugrad as torch
    >>> torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    __torch_function__ = staticmethod(plainly)  # results are Tensors

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if isinstance(data, Tensor) and (overrides(type(data)) or data.layout is not strided):
            marked: Any = data.detach().requires_grad_(requires_grad)
            marked._is_param = True
            return marked
        source = empty(0) if data is None else data
        if not isinstance(source, Tensor):
            raise TypeError(
                f"Parameter: got data of type {type(data).__name__}, want a Tensor; "
                "make one with cugrad.tensor(data)"
            )
        self = object.__new__(cls)
        self.fill_in(source._array)
        tell_shared(self, source)
        self.requires_grad = requires_grad
        return self

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detach(), self.requires_grad)


class _Buffers(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and getattr(value, "_is_buffer", False)


class Buffer(metaclass=_Buffers):
    """A tensor that a Module registers as a buffer when it is assigned as an attribute.

    A Tensor is made, which shares the memory of `data`; `persistent` puts it in the state_dict.

    >>> import cugrad as torch
    >>> layer = torch.nn.Module()
    >>> layer.mean = torch.nn.Buffer(torch.zeros(2))
    >>> layer.state_dict()["mean"]
    tensor([0., 0.])
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        source = empty(0) if data is None else data
        buffer: Any = source.detach().requires_grad_(source.requires_grad)
        buffer.persistent, buffer._is_buffer = persistent, True
        return buffer


_ARRAY = Tensor.__dict__["_array"]  # the field, which the classes below hide


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet: it has a dtype and a device, and no elements.

    Whatever reads its elements or its shape raises an error; `materialize` makes an ordinary tensor
    of the same object, so that optimizers and modules keep it.
    """

    __slots__ = ()
    __torch_function__ = staticmethod(plainly)
    cls_to_become: type[Tensor]
    _requires_grad: bool
    _node: Any

    @property
    def _array(self) -> Any:
        raise ValueError(
            "Attempted to use an uninitialized parameter. This error happens when you are using a "
            "`LazyModule` or explicitly manipulating "
            f"`cugrad.nn.parameter.{type(self).__name__}` objects. When using LazyModules call "
            "`forward` with a dummy batch to initialize the parameters before calling functions"
        )

    @_array.setter
    def _array(self, value: Any) -> None:
        _ARRAY.__set__(self, value)

    @property
    def data(self) -> Tensor:
        """An empty tensor, of the dtype and on the device that the elements will have."""
        return make(_ARRAY.__get__(self))

    @data.setter
    def data(self, value: Tensor) -> None:
        _ARRAY.__set__(self, value._array)

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def device(self) -> Any:
        return self.data.device

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Makes an ordinary tensor of this one, with elements that are left open.

        Its dtype and device are those it was given before, unless this call says otherwise.
        """
        device = self.device if device is None else device
        self.data = empty(shape, device=device, dtype=self.dtype if dtype is None else dtype)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    def detach(self) -> Any:
        """This tensor, which has no history; so a state dict holds it."""
        return self

    def share_memory_(self) -> Any:
        """RuntimeError: there is no memory to share."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            options = (self._requires_grad, self.device, self.dtype)
            memo[id(self)] = type(self)(*options)  # type: ignore[call-arg]
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self._requires_grad, self.device, self.dtype)


def is_lazy(param: object) -> bool:
    """Whether it is a parameter or a buffer that has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter of a lazy module before its first call, when its shape is not known yet.

    >>> import cugrad as torch
    >>> weight = torch.nn.UninitializedParameter()
    >>> weight
    <UninitializedParameter>
    >>> weight.materialize((2, 3))
    >>> type(weight).__name__, weight.shape
    ('Parameter', torch.Size([2, 3]))
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        self = object.__new__(cls)
        self.fill_in(empty(0, device=device, dtype=dtype)._array, requires_grad)
        return self


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer of a lazy module before its first call, when its shape is not known yet."""

    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
        persistent: bool = True,
    ) -> Any:  # fmt: skip
        buffer: Any = object.__new__(cls)
        buffer.fill_in(empty(0, device=device, dtype=dtype)._array, requires_grad)
        buffer.persistent, buffer._is_buffer = persistent, True
        return buffer


explain(__name__)
