"""How large the code is: ``python -m tests.lab.size [CHECKOUT]``, a line for each figure.

Reads the source only, so that any commit can be counted by the same command. A room is a folder
with modules; an arrow leads from a room to another one that it imports from, also inside functions.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PRODUCT = ("streams", "monitoring", "sparkjobs", "emsproject")
FACES = ("streams/admin", "streams/http", "streams/management")
MEANT_TO_REPEAT = {"Meta", "Command", "Migration"}


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    for name, figure in figures(root):
        print(f"{name:44} {figure}")


def figures(root: Path) -> Iterator[tuple[str, object]]:
    for package in (*PRODUCT, "tests"):
        yield f"lines of {package}", lines(root / package)
    yield "lines of the product", sum(lines(root / package) for package in PRODUCT)
    yield "lines of the faces", sum(lines(root / face) for face in FACES)
    arrows = set(_arrows(root))
    yield "rooms", len({room for arrow in arrows for room in arrow})
    yield "arrows between rooms", len(arrows)
    names = Counter(_class_names(root))
    repeated = {name: times for name, times in names.items() if times > 1}
    yield "names of several classes", f"{len(repeated)} names, {sum(repeated.values())} classes"
    migrations = [path for path in _modules(root) if path.parent.name == "migrations"]
    yield "migrations", sum(path.stem != "__init__" for path in migrations)
    yield "tables", len(set(_tables(root)))


def lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def _modules(root: Path) -> Iterator[Path]:
    for package in PRODUCT:
        yield from sorted((root / package).rglob("*.py"))


def _arrows(root: Path) -> Iterator[tuple[str, str]]:
    for path in _modules(root):
        here = str(path.parent.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _imported(node):
                there = _room(root, name)
                if there and there != here:
                    yield here, there


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(root: Path, name: str) -> str:
    """Return the folder of the module that a dotted name leads to; an empty text: not ours."""
    parts = name.split(".")
    if parts[0] not in PRODUCT:
        return ""
    place = root
    for part in parts:
        if not (place / part).is_dir():
            break
        place = place / part
    return str(place.relative_to(root))


def _class_names(root: Path) -> Iterator[str]:
    for path in _modules(root):
        if path.parent.name != "migrations":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and node.name not in MEANT_TO_REPEAT:
                    yield node.name


def _tables(root: Path) -> Iterator[str]:
    """Yield the names of the tables that models name themselves, as each model here does."""
    for path in _modules(root):
        if "models" in (path.parent.name, path.stem):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "db_table":
                    yield ast.unparse(node.value)


if __name__ == "__main__":
    main()
