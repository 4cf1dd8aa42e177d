"""A whole program: which sorts of statements, how often, and how it ends."""

from __future__ import annotations

from . import table
from .drawing import Draw, Ended, Spoiled
from .functions import CUSTOM, around, checkpointed, dual, fusible, trained, transform
from .passes import accumulate, backward, batched, clear_gradient, first, gradient, loss, second
from .statements import Sort, change, constant, copy_and_change, flag, hook, leaf, op, region
from .table_layers import LAYERS
from .table_rare import RARE
from .table_recurrent import RECURRENT
from .table_seldom import SELDOM
from .table_sparse import SPARSE
from .table_uncommon import UNCOMMON

SORTS: dict[str, tuple[Sort, float]] = {
    "leaf": (leaf, 1),
    "constant": (constant, 2),
    "pointwise": (op(table.POINTWISE), 8),
    "binary": (op(table.BINARY), 7),
    "reducing": (op(table.REDUCING), 5),
    "indexing": (op(table.INDEXING), 4),
    "matrices": (op(table.MATRICES), 4),
    "rare": (op(RARE), 7),
    "view": (op(table.VIEWS), 9),
    "change": (change, 9),
    "copy": (copy_and_change, 2),
    "recurrent": (op(RECURRENT), 1.5),
    "layers": (op(LAYERS), 3),
    "seldom": (op(SELDOM), 4),
    "sparse": (op(SPARSE), 2),
    "uncommon": (op(UNCOMMON), 3),
    "custom": (op(CUSTOM), 4),
    "flag": (flag, 1.5),
    "region": (region, 3),
    "around": (around, 1),
    "hook": (hook, 2),
    "checkpoint": (checkpointed, 2),
    "fusible": (fusible, 1.5),
    "transform": (transform, 4),
    "dual": (dual, 1),
    "trained": (trained, 1.2),
    "gradient": (gradient, 2),
    "batched": (batched, 1),
    "accumulate": (accumulate, 1),
    "clear": (clear_gradient, 0.5),
}


def draw(d: Draw) -> None:
    """Fills `d.statements`: leaves, a middle, and a loss with its derivatives."""
    for _ in range(d.random.randint(1, 3)):
        keep(d, leaf)
    size = d.random.choice((3, 6, 10, 16, 24))
    tries = 0
    while len(d.statements) < size + 2 and tries < 6 * size:
        tries += 1
        sorts, weights = zip(*SORTS.values())
        sort = d.random.choices(sorts, weights)[0]
        if keep(d, sort) == "ended":
            return
    for sort in (loss, first, second, backward):
        if keep(d, sort) == "ended":
            return


def keep(d: Draw, sort: Sort) -> str:
    """Draws one statement and appends it."""
    numbers = d.numbers
    try:
        statement = sort(d)
    except Spoiled:
        d.numbers = numbers
        d.renew()
        return "nothing"
    except Ended as end:
        d.statements.append(end.args[0])
        return "ended"
    if statement is None:
        return "nothing"
    d.statements.append(statement)
    return "kept"
