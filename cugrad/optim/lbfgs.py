"""L-BFGS: Newton's direction, from the last few changes of the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.mode import enable_grad, no_grad
from ..autograd.recording.recorded import recorded
from ..functions.shapes.copies import cat
from ..runtime.absent import explain
from ..tensor import Tensor
from .checks import check_rate
from .line_search import strong_wolfe
from .optimizer import Optimizer, ParamsT

__all__ = ["LBFGS"]

KEPT = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """L-BFGS: steps along an estimate of Newton's direction; a step evaluates the model often.

    `step` wants a closure that clears the gradients, computes the loss, calls backward and returns
    the loss. All parameters are one group, on one device. Complex ones are taken as pairs of reals.
    Source: Nocedal & Wright 2006, Numerical Optimization, algorithm 7.4, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element: the length of a step along the direction.
        max_iter: iterations in a step.
        max_eval: evaluations in a step; max_iter * 5 // 4 if None.
        tolerance_grad: a step ends when no element of the gradient is larger.
        tolerance_change: a step ends when the parameters or the loss change by less.
        history_size: how many changes of the gradient are kept.
        line_search_fn: None, or "strong_wolfe".

    Raises:
        ValueError: for a negative lr, or several groups.
        RuntimeError: in `step`, for another line search.

    >>> import cugrad as torch
    >>> w = torch.tensor([3., -2.], requires_grad=True)
    >>> optimizer = torch.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w * w).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure), (w.detach().abs() < 1e-4).all()
    (tensor(13., grad_fn=<SumBackward0>), tensor(True))
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_rate(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _gather_flat_grad(self) -> Tensor:
        flat = []
        for param in self._params:
            grad = param.new_zeros(param.shape) if param.grad is None else param.grad
            flat.append(_as_reals(grad.detach().reshape(-1)).reshape(-1))
        return cat(flat, 0)

    def _add_grad(self, step_size: Any, update: Tensor) -> None:
        offset = 0
        for param in map(_as_reals, self._params):
            part = update[offset : offset + param.numel()].reshape(param.shape)
            param.add_(part * step_size)
            offset += param.numel()

    def _evaluate(self, closure: Any, start: list[Tensor], t: Any, d: Tensor) -> Any:
        """The loss and gradient at a step from `start`, where the parameters are put back."""
        self._add_grad(t, d)
        loss = float(closure())
        gradient = self._gather_flat_grad()
        for param, value in zip(self._params, start):
            param.copy_(value)
        return loss, gradient

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        """Up to `max_iter` iterations; the loss that `closure` returned first."""
        if len(self.param_groups) != 1:
            raise AssertionError(
                f"Expected exactly one param_group, but got {len(self.param_groups)}"
            )
        with_gradients = enable_grad()(closure)
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = with_gradients()
        state["func_evals"] += 1
        gradient = self._gather_flat_grad()
        if not gradient.abs().max() <= group["tolerance_grad"]:  # also where it is nan
            run = _Run(self, with_gradients, group, state, float(first), gradient)
            for iteration in range(1, group["max_iter"] + 1):
                if run.iterate(last=iteration == group["max_iter"]):
                    break
            state.update({name: getattr(run, name) for name in KEPT})
        return first


class _Run:
    """The iterations of one step; `KEPT` names what the next step goes on from."""

    def __init__(
        self, optimizer: LBFGS, closure: Any, group: Any, state: Any, loss: float, gradient: Tensor
    ) -> None:
        self.optimizer, self.closure, self.group, self.state = optimizer, closure, group, state
        self.loss, self.gradient = loss, gradient
        self.evaluations = 1
        lr = group["lr"]
        self.lr = lr.reshape(()) if isinstance(lr, Tensor) else lr
        for name in KEPT:
            setattr(self, name, state.get(name))

    def iterate(self, last: bool) -> bool:
        """One iteration; True if it is time to stop."""
        group = self.group
        self.state["n_iter"] += 1
        first = self.state["n_iter"] == 1
        self._find_direction(first)
        self.prev_flat_grad, self.prev_loss = self.gradient.clone(), self.loss
        small = self.gradient.abs().sum()
        self.t = min(1.0, 1.0 / small) * self.lr if first else self.lr
        slope = self.gradient.dot(self.d)
        if slope > -group["tolerance_change"]:
            return True
        evaluations = self._walk(slope, last)
        self.evaluations += evaluations
        self.state["func_evals"] += evaluations
        return bool(
            last
            or self.evaluations >= group["max_eval"]
            or self.gradient.abs().max() <= group["tolerance_grad"]
            or (self.d * self.t).abs().max() <= group["tolerance_change"]
            or abs(self.loss - self.prev_loss) < group["tolerance_change"]
        )

    def _find_direction(self, first: bool) -> None:
        """Minus the inverse Hessian times the gradient, as the changes that are kept know it."""
        if first:
            self.d, self.H_diag = self.gradient.neg(), 1
            self.old_dirs: list[Any] = []
            self.old_stps: list[Any] = []
            self.ro: list[Any] = []
            return
        y, s = self.gradient - self.prev_flat_grad, self.d * self.t
        ys = y.dot(s)
        if ys > 1e-10:
            if len(self.old_dirs) == self.group["history_size"]:
                for kept in (self.old_dirs, self.old_stps, self.ro):
                    kept.pop(0)
            self.old_dirs.append(y)
            self.old_stps.append(s)
            self.ro.append(1.0 / ys)
            self.H_diag = ys / y.dot(y)
        count = len(self.old_dirs)
        al = self.state.setdefault("al", [None] * self.group["history_size"])
        q = self.gradient.neg()
        for i in range(count - 1, -1, -1):
            al[i] = self.old_stps[i].dot(q) * self.ro[i]
            q = q - self.old_dirs[i] * al[i]
        r = q * self.H_diag
        for i in range(count):
            r = r + self.old_stps[i] * (al[i] - self.old_dirs[i].dot(r) * self.ro[i])
        self.d = r

    def _walk(self, slope: Any, last: bool) -> int:
        """Moves the parameters; how often the loss was evaluated."""
        optimizer, search = self.optimizer, self.group["line_search_fn"]
        if search is None:
            optimizer._add_grad(self.t, self.d)
            if last:  # the results of an evaluation would not be used
                return 0
            self.loss = float(self.closure())
            self.gradient = optimizer._gather_flat_grad()
            return 1
        if search != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        start = [param.clone() for param in optimizer._params]
        self.loss, self.gradient, self.t, evaluations = strong_wolfe(
            lambda t: optimizer._evaluate(self.closure, start, t, self.d), self.t, self.d,
            self.loss, self.gradient, slope, 1e-9, self.group["max_eval"] - self.evaluations,
        )  # fmt: skip
        optimizer._add_grad(self.t, self.d)
        return evaluations


def _as_reals(t: Tensor) -> Tensor:
    return recorded.view_as_real(t) if t.is_complex() else t


explain(__name__)
