"""``python -m tests.map`` writes what docs/contributing/map.md says of each module.

That is the first line of the module. The rest of the page is written by hand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contributing" / "map.md"
PACKAGES = ("streams", "monitoring", "sparkjobs")
HEAD = "| file | holds |\n|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def written() -> str:
    """Return the page as it must be; raises LookupError for a module that no room has."""
    begin, *rooms = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)
    headings = {_heading(room) for room in rooms}
    by_room: dict[str, list[str]] = {}
    for module in modules():
        by_room.setdefault(_room_of(module, headings), []).append(module)
    return begin + "".join(_with_table(room, by_room.get(_heading(room), [])) for room in rooms)


def modules() -> Iterator[str]:
    """Yield the path of each module of the packages, but of migrations and ``__init__``."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py" and "migrations" not in path.parts:
                yield str(path.relative_to(ROOT))


def _heading(room: str) -> str:
    return room.partition("\n")[0].removeprefix("## ")


def _room_of(module: str, headings: set[str]) -> str:
    """Return the heading of the innermost folder that has one."""
    for folder in Path(module).parents:
        if f"{folder}/" in headings:
            return f"{folder}/"
    raise LookupError(f"{PAGE.name} has no heading for {module}")


def _with_table(room: str, found: list[str]) -> str:
    lines = [_line(module, _heading(room)) for module in sorted(found, key=_order)]
    return TABLE.sub(lambda _: HEAD + "".join(lines), room, count=1) if lines else room


def _order(module: str) -> tuple[int, str]:
    return module.count("/"), module


def _line(module: str, room: str) -> str:
    text = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
    first = text.partition("\n")[0].replace(":class:", "").replace("``", "`")
    return f"| `{module.removeprefix(room)}` | {first} |\n"


if __name__ == "__main__":
    PAGE.write_text(written())
