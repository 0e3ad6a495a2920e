"""docs/contributing/map.md has one line for each module, and none for what is not there."""

from __future__ import annotations

import re

from tests.docs.documents import DOCS, ROOT, table
from tests.test_layout import FLOORS

MAP = DOCS / "contributing" / "map.md"
PACKAGES = ("streams", "monitoring", "sparkjobs")


def lines_of_the_map() -> list[str]:
    """The modules that it names, each with the room of its heading."""
    found = []
    for room in re.split(r"^## ", MAP.read_text(), flags=re.MULTILINE)[1:]:
        heading = room.partition("\n")[0]
        if heading.split("/")[0] in PACKAGES:
            found += [heading + name for name in re.findall(r"^\| `([\w/]+\.py)` \|", room, re.M)]
    return found


def modules() -> list[str]:
    paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return [
        str(path.relative_to(ROOT))
        for path in paths
        if path.name != "__init__.py" and "migrations" not in path.parts
    ]


def test_every_module_has_its_line() -> None:
    assert sorted(lines_of_the_map()) == sorted(modules())


def test_no_module_has_two_lines() -> None:
    named = lines_of_the_map()
    assert len(named) > 100
    assert len(named) == len(set(named))


def test_its_floors_are_those_that_are_tested() -> None:
    # Migrations and the package itself are not rooms that anybody looks for.
    expected = [floor - {"migrations", "__init__"} for floor in FLOORS["streams"]]
    documented = table(MAP, "The direction of imports").values()
    assert [set(re.findall(r"\w+", rooms)) for rooms in documented] == expected
