"""A line search whose step satisfies the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..tensor import Tensor

__all__ = ["Point", "lowest_of_cubic", "strong_wolfe"]

DECREASE, CURVATURE = 1e-4, 0.9  # Nocedal & Wright 2006, page 62


class Point(NamedTuple):
    """A step length, the value there, the gradient, and its slope along the direction."""

    step: Any
    value: float
    gradient: Tensor
    slope: Any


def strong_wolfe(
    evaluate: Callable[[Any], tuple[float, Tensor]],
    step: Any,
    direction: Tensor,
    value: float,
    gradient: Tensor,
    slope: Any,
    tolerance_change: float,
    max_evaluations: int,
    decrease: float = DECREASE,
    curvature: float = CURVATURE,
) -> tuple[float, Tensor, Any, int]:
    """The value, gradient and length of a step, and how often `evaluate(length)` was called.

    Source: Nocedal & Wright 2006, Numerical Optimization, algorithms 3.5 and 3.6, in the form that
    PyTorch took from Torch.
    """
    search = _Search(
        evaluate, direction, Point(0, value, gradient.clone(), slope), decrease, curvature
    )
    bracket, done = search.bracketed(step, max_evaluations)
    best = search.zoomed(bracket, done, tolerance_change, max_evaluations)
    return best.value, best.gradient, best.step, search.evaluations


class _Search:
    """What stays the same in one search, and what has been counted."""

    def __init__(
        self, evaluate: Any, direction: Tensor, start: Point, decrease: float, curvature: float
    ) -> None:
        self.evaluate, self.direction, self.start = evaluate, direction, start
        self.decrease, self.curvature = decrease, curvature
        self.iteration = self.evaluations = 0

    def at(self, step: Any) -> Point:
        value, gradient = self.evaluate(step)
        self.evaluations += 1
        return Point(step, value, gradient, gradient.dot(self.direction))

    def is_too_high(self, point: Point) -> bool:
        start = self.start
        return bool(point.value > start.value + self.decrease * point.step * start.slope)

    def is_flat(self, point: Point) -> bool:
        return bool(abs(point.slope) <= -self.curvature * self.start.slope)

    def bracketed(self, step: Any, limit: int) -> tuple[list[Point], bool]:
        """Two points with a good step between them, or a good one alone."""
        before, point = self.start, self.at(step)
        while self.iteration < limit:
            no_lower = self.iteration > 1 and point.value >= before.value
            if self.is_too_high(point) or no_lower:
                return [before, point], False
            if self.is_flat(point):
                return [point], True
            if point.slope >= 0:
                return [before, point], False
            least = point.step + 0.01 * (point.step - before.step)
            step = lowest_of_cubic(before, point, (least, point.step * 10))
            before, point = point, self.at(step)
            self.iteration += 1
        return [self.start, point], False

    def zoomed(self, bracket: list[Point], done: bool, tolerance: float, limit: int) -> Point:
        """The best point of a bracket that is narrowed."""
        size = self.direction.abs().max()
        stuck = False
        low, high = (0, 1) if bracket[0].value <= bracket[-1].value else (1, 0)
        while not done and self.iteration < limit:
            if abs(bracket[1].step - bracket[0].step) * size < tolerance:
                break
            step = lowest_of_cubic(bracket[0], bracket[1])
            step, stuck = _inside(step, [p.step for p in bracket], stuck)
            point = self.at(step)
            self.iteration += 1
            if self.is_too_high(point) or point.value >= bracket[low].value:
                bracket[high] = point
                low, high = (0, 1) if bracket[0].value <= bracket[1].value else (1, 0)
                continue
            if self.is_flat(point):
                done = True
            elif point.slope * (bracket[high].step - bracket[low].step) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
        return bracket[low if len(bracket) > 1 else 0]


def _inside(step: Any, ends: list[Any], stuck: bool) -> tuple[Any, bool]:
    """A step that is not at an end of the bracket twice, and whether it was near one."""
    least, most = min(ends), max(ends)
    margin = 0.1 * (most - least)
    if min(most - step, step - least) >= margin:
        return step, False
    if not (stuck or step >= most or step <= least):
        return step, True
    return (most - margin if abs(step - most) < abs(step - least) else least + margin), False


def lowest_of_cubic(a: Point, b: Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with their slopes is lowest, within bounds."""
    if bounds is None:
        bounds = (a.step, b.step) if a.step <= b.step else (b.step, a.step)
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (bounds[0] + bounds[1]) / 2.0
    d2 = square.sqrt() if isinstance(square, Tensor) else math.sqrt(square)
    left, right = (a, b) if a.step <= b.step else (b, a)
    share = (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2)
    return min(max(right.step - (right.step - left.step) * share, bounds[0]), bounds[1])
