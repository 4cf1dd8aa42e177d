"""Finds the earlier session from which a new one learns what comes next."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .session import Session, TransferPlan

__all__ = ["PlanBook"]

REMEMBERED = 64  # keys of sessions from which plans are made


class PlanBook(OrderedDict[Any, Session]):
    """The last sessions of a device, by how they began and by what they were."""

    def learned(self, session: Session, nbytes: int) -> TransferPlan | None:
        """The plan of the last session that began like this one, and which is now forgotten."""
        exact, loose = (session.key, nbytes, session.follows), (session.key, nbytes)
        found = self.get(exact) or self.get(loose)
        if found is session:  # whose first storage could not be sent
            return session.plan
        self.remember(session, exact, loose)
        return None if found is None else found.learned()

    def remember(self, session: Session, *keys: Any) -> None:
        """Enters a session, and forgets those that were entered first."""
        for key in keys:
            self[key] = session
            self.move_to_end(key)
        while len(self) > REMEMBERED:
            self.popitem(last=False)

    def learned_of_another(self, session: Session, nbytes: int) -> TransferPlan | None:
        """The plan of the last session that was the same up to here, where the one that was
        followed is not: contexts of several networks take turns.
        """
        index = len(session.sizes)
        for other in reversed(self.values()):
            sizes = other.sizes
            if other is session or len(sizes) <= index or other.key != session.key:
                continue
            if sizes[index] != nbytes and not other.families:
                continue
            plan = other.learned() if other.families else None
            if plan is not None:  # of fewer storages than were sent in parts
                sizes = plan.sizes
            if sizes[index : index + 1] == [nbytes] and sizes[:index] == session.sizes:
                return plan or other.learned()
        return None
