"""Rows that take arrays into a vmap and out of it: their `level` is a BatchLevel."""

from __future__ import annotations

from ..table import INHERITED, LINEAR, row

# They show memory in another shape, so they are views: a change in place inside a vmap is seen
# outside, and the other way around. A new tensor's face outside is no view for that.

row("vmap_wrap", "self", lambda xp, self, level, dim: level.wrap(self, dim), LINEAR, view=True,
    self=lambda m, g, level, dim: m.vmap_unwrap(g, level, dim),
    doc="dimension `dim` becomes the hidden one")  # fmt: skip

row("vmap_unwrap", "self", lambda xp, self, level, dim: level.unwrap(self, dim), LINEAR,
    view=INHERITED,
    self=lambda m, g, level, dim: m.vmap_wrap(g, level, dim),
    doc="the hidden dimension becomes dimension `dim`")  # fmt: skip

row("vmap_lift", "self", lambda xp, self, level: level.lift(self), LINEAR, view=True,
    self=lambda m, g, level: m.vmap_total(g, level),
    doc="the same for every example")  # fmt: skip

row("vmap_total", "self", lambda xp, self, level: level.total(self), LINEAR,
    self=lambda m, g, level: m.vmap_lift(g, level),
    doc="the sum over the examples")  # fmt: skip
