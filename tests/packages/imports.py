"""What packages import from torch: read from their sources, and tried.

`python -m tests.packages.imports FOLDER` writes imports.txt: the names that the packages installed
in the folder import, within functions too. `python -m cugrad.as_torch -m tests.packages.imports`
prints those of the file that are not there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

FILE = Path(__file__).with_name("imports.txt")
# Of PyTorch's exporters, imported within the functions that export.
APART = ("torch._prims_common", "torch.utils._sympy")


def imported(folder: Path) -> list[str]:
    """`module` and `module:name` of each import of torch in the sources below a folder."""
    names: set[str] = set()
    for path in folder.rglob("*.py"):
        text = path.read_text(errors="ignore")
        if "from torch" in text or "import torch" in text:
            names.update(imports_of(text))
    return sorted(name for name in names if not name.startswith(APART))


def imports_of(text: str) -> Iterator[str]:
    """Those of one source; none where it is no Python, as templates are."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == "torch")
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module.partition(".")[0] == "torch":
                yield from (f"{node.module}:{a.name}" for a in node.names if a.name != "*")


def missing(names: list[str]) -> list[str]:
    """Those that an import statement does not find, with its error."""
    lacking = []
    for line in names:
        module, _, name = line.partition(":")
        try:
            if name and not hasattr(import_module(module), name):
                import_module(f"{module}.{name}")
            import_module(module)
        except ImportError as error:
            lacking.append(f"{line}: {error}")
    return lacking


if __name__ == "__main__":
    if sys.argv[1:]:
        FILE.write_text("\n".join(imported(Path(sys.argv[1]))) + "\n")
    else:
        print("\n".join(missing(FILE.read_text().split())), end="")
