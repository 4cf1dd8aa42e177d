"""The scale of a loss whose gradients are float16, so that small ones do not vanish."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from functools import reduce
from typing import Any

from ..autograd.mode import no_grad
from ..autograd.recording.recorded import recorded
from ..cuda import is_available as cuda_is_available
from ..dtypes import float16, float32, int32
from ..functions.creation.factories import full, full_like, zeros_like
from ..functions.maths.arithmetic import where
from ..functions.maths.lists import next_scale, unscale_together
from ..runtime.absent import explain
from ..tensor import Tensor

__all__ = ["GradScaler"]


class OptState(Enum):
    """How far one optimizer is since the last `update()`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


READY, UNSCALED, STEPPED = OptState
FOUND = "found_inf_per_device"  # in the state: device -> 1.0 if a gradient there is not finite


def _refresh_per_optimizer_state() -> dict[str, Any]:
    """What has become of one optimizer since the last `update()`: nothing yet."""
    return {"stage": READY, FOUND: {}}


def _any_bad(seen: dict[str, Any], like: Tensor) -> Tensor:
    """1 if a gradient is not finite, else 0, where a tensor is."""
    flags = [flag.to(like.device) for flag in seen[FOUND].values()]
    return reduce(recorded.maximum, flags) if flags else zeros_like(like)


class GradScaler:
    """Scales a loss so that float16 gradients do not vanish, and skips steps that overflowed.

    The scale grows by `growth_factor` after `growth_interval` steps with finite gradients, and
    shrinks by `backoff_factor` after one without. `step` waits for the device once, to learn which,
    unless the optimizer is a fused one.

    Args:
        device: "cuda", "cpu" or "simulated"; "cuda" without a GPU disables it, with a warning.
        init_scale: the first scale.
        growth_factor, backoff_factor: factors of the scale, above 1 and below 1.
        growth_interval: steps.
        enabled: False: everything passes through.

    >>> import cugrad as torch
    >>> net = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    >>> with torch.autocast("cpu", dtype=torch.float16):
    ...     loss = net(torch.ones(3, 4)).sum()
    >>> scaler.scale(loss).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> scaler.get_scale()
    1024.0
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and device == "cuda" and not cuda_is_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            enabled = False
        self._device, self._enabled = device, enabled
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._finite_steps: int | Tensor = 0  # since the scale changed; where the scale is
        self._scale: Tensor | None = None  # made where the first loss is
        # By the id of the optimizer. Programs that step by themselves read and write it.
        self._per_optimizer_states = defaultdict[int, dict[str, Any]](_refresh_per_optimizer_state)

    def __repr__(self) -> str:
        scale = f", scale={self.get_scale()}" if self._enabled else ", enabled=False"
        return f"GradScaler({self._device!r}{scale})"

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._per_optimizer_states:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update()."
            )
        return vars(self).copy()

    def scale(self, outputs: Any) -> Any:
        """A loss, or losses in a list or tuple, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            assert self._scale is not None
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divides an optimizer's gradients by the scale, before they are clipped, say.

        Raises:
            RuntimeError: it was called for this optimizer already, or after `step`.
            ValueError: gradients are float16: parameters must be float32.
        """
        if not self._enabled:
            return
        scale = self._started("unscale_")
        seen = self._per_optimizer_states[id(optimizer)]
        if seen["stage"] is UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if seen["stage"] is STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        if getattr(self._unscale_grads_, "__func__", None) is GradScaler._unscale_grads_:
            seen[FOUND] = _unscaled(optimizer, scale, allow_half=False)
        else:  # a program has one of its own, which allows float16, say
            inverse, none = scale.double().reciprocal().float(), zeros_like(scale)
            seen[FOUND] = self._unscale_grads_(optimizer, inverse, none, False)
        seen["stage"] = UNSCALED

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        """Multiplies an optimizer's gradients; by device, 1 if one is not finite, else 0."""
        return _unscaled(optimizer, inv_scale, allow_fp16, inverted=True)

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """By device, 1 if a gradient of an optimizer is not finite, else 0: as they are."""
        one = full_like(self._started("_check_inf_per_device"), 1.0)
        flags = self._unscale_grads_(optimizer, one, zeros_like(one), True)
        self._per_optimizer_states[id(optimizer)][FOUND] = flags
        return flags

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """What was found of an optimizer since the last `update()`, by device."""
        flags: dict[Any, Tensor] = self._per_optimizer_states[id(optimizer)][FOUND]
        return flags

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)` with gradients unscaled; None, and no step, if one is not finite.

        A fused optimizer is told the scale, and whether a gradient is not finite, as its
        `grad_scale` and `found_inf`: on CUDA its kernels look at them, and nothing is waited for.

        Raises:
            RuntimeError: a closure is given, or it was called since the last `update` already.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        scale = self._started("step")
        seen = self._per_optimizer_states[id(optimizer)]
        if seen["stage"] is STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_scaled(optimizer, seen, scale, args, kwargs)
        if seen["stage"] is READY:
            self.unscale_(optimizer)
        if not seen[FOUND]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._maybe_opt_step(optimizer, seen, *args, **kwargs)
        seen["stage"] = STEPPED  # unless it raised: then it may be called again
        return result

    def _maybe_opt_step(
        self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """The step, unless a gradient is not finite. Waits for the device."""
        if any(flag.item() for flag in optimizer_state[FOUND].values()):
            return None
        return optimizer.step(*args, **kwargs)

    def _step_scaled(
        self, optimizer: Any, seen: dict[str, Any], scale: Tensor, args: Any, kwargs: Any
    ) -> Any:
        """The step of an optimizer that takes gradients as they are."""
        rest = None if seen["stage"] is UNSCALED else scale * getattr(optimizer, "grad_scale", 1.0)
        if seen["stage"] is READY:
            seen[FOUND] = _unscaled(optimizer, full_like(scale, 1.0), allow_half=True)
        optimizer.grad_scale, optimizer.found_inf = rest, _any_bad(seen, scale)
        try:
            result = optimizer.step(*args, **kwargs)
            seen["stage"] = STEPPED
            return result
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Ends an iteration: the scale is kept, grows or shrinks, or becomes `new_scale`."""
        if not self._enabled:
            return
        scale = self._started("update")
        if isinstance(new_scale, Tensor):
            if (
                new_scale.numel() != 1
                or new_scale._requires_grad
                or (new_scale.device.type != self._device)
            ):
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                    "torch.FloatTensor with requires_grad=False."
                )
            scale.copy_(new_scale.reshape(()))
        elif new_scale is not None:
            scale.fill_(new_scale)
        else:
            checked = [seen for seen in self._per_optimizer_states.values() if seen[FOUND]]
            if not checked:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._change(scale, checked)
        self._per_optimizer_states.clear()

    def _change(self, scale: Tensor, checked: list[dict[str, Any]]) -> None:
        """The scale after a step, and how many were finite; nothing is waited for."""
        steps = self._finite_steps
        assert isinstance(steps, Tensor)
        factors = self._growth_factor, self._backoff_factor, self._growth_interval
        bad = reduce(recorded.maximum, [_any_bad(seen, scale) for seen in checked])
        if next_scale(scale, steps, bad, *factors):
            return
        after, grown, failed = steps + 1, scale * self._growth_factor, bad != 0
        due = after == self._growth_interval
        larger = where(due & grown.isfinite(), grown, scale)
        scale.copy_(where(failed, scale * self._backoff_factor, larger))
        steps.copy_(where(failed | due, zeros_like(steps), after))

    def _started(self, what: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        """Makes the scale, and the count of finite steps, on a device."""
        self._scale = full((), self._init_scale, dtype=float32, device=dev)
        self._finite_steps = full((), self._finite_steps, dtype=int32, device=dev)

    @property
    def _growth_tracker(self) -> Tensor | None:
        """The finite steps since the scale changed; None as long as no loss was scaled."""
        return self._finite_steps if isinstance(self._finite_steps, Tensor) else None

    def get_scale(self) -> float:
        """The scale; 1.0 if disabled. Waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_growth_tracker(self) -> int:
        """The finite steps since the scale changed. Waits for the device."""
        steps = self._finite_steps
        return int(steps.item()) if isinstance(steps, Tensor) else steps

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by after `growth_interval` finite steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Another growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after a step that overflowed."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Another backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The finite steps after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Another growth interval."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What it knows, to be saved; {} if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` returned. RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved "
                "from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        steps = state_dict["_growth_tracker"]
        if isinstance(self._finite_steps, Tensor):
            self._finite_steps.fill_(steps)
        else:
            self._finite_steps = steps


def _grads_of(optimizer: Any) -> list[Any]:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [param.grad for param in params if param.grad is not None]


@no_grad()
def _unscaled(
    optimizer: Any, scale: Tensor, allow_half: bool, inverted: bool = False
) -> dict[Any, Tensor]:
    """Divides an optimizer's gradients by the scale; by device, 1 if one is not finite, else 0.

    `inverted`: what is given is the inverse of the scale.
    """
    by_device: dict[Any, list[Tensor]] = {}
    for grad in _grads_of(optimizer):
        if grad.dtype is float16 and not allow_half:
            raise ValueError("Attempting to unscale FP16 gradients.")
        if grad.is_sparse:
            grad = grad._elements  # each in place: what lies twice is as large as it was
        by_device.setdefault(grad.device, []).append(grad)
    flags: dict[Any, Tensor] = {}
    for device, grads in by_device.items():
        flag = None if inverted else unscale_together(grads, scale.to(device))
        if flag is None:
            inverse = (scale if inverted else scale.double().reciprocal().float()).to(device)
            flag = reduce(recorded.maximum, [_not_finite(g) for g in grads])
            for grad in grads:
                _multiply(grad, inverse)
        flags[device] = flag
    return flags


def _not_finite(grad: Any) -> Tensor:
    """1 if an element is not finite, else 0; of what is elsewhere perhaps from before it left."""

    def flag(t: Tensor) -> Tensor:
        return t.isfinite().all().logical_not().float()

    return grad._told("not finite", flag) if grad._may_be_away else flag(grad)


def _multiply(grad: Any, factor: Tensor) -> None:
    """Multiplies a gradient in place; one that is elsewhere where it is used next."""
    if grad._may_be_away:
        grad._change_later(lambda t: t.mul_(factor.to(t.device)))
    else:
        grad.mul_(factor)


explain(__name__)
