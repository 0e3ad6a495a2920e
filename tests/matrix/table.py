"""Writes the table of the matrix into docs/reference/versions.md, between its markers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.docs.documents import DOCS
from tests.parts import Part

PAGE = DOCS / "reference" / "versions.md"
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"


def keep(parts: Sequence[Part], machine: Mapping[str, Any], absent: Sequence[str]) -> None:
    """Put the table of these parts in the place of the one before."""
    whole = PAGE.read_text()
    before, _, rest = whole.partition(BEGIN)
    after = rest.partition(END)[2]
    text = "\n".join(table(parts, machine, absent))
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def table(parts: Sequence[Part], machine: Mapping[str, Any], absent: Sequence[str]) -> list[str]:
    """Return the lines: a row for each Python and Django, a column for each server and driver."""
    rows: dict[str, dict[str, str]] = {}
    columns: dict[str, None] = {}
    versions: dict[str, set[str]] = {}
    for part in parts:
        django, python, *place = part.name.split("/")
        said = part.details.get("versions", {})
        exact = f"{said.get('Django', django)} | {said.get('Python', python)}"
        column = ", ".join(place)
        columns[column] = None
        counts = " · ".join(map(str, part.counts))
        rows.setdefault(exact, {})[column] = counts if part.is_green else "**failed**"
        for name in said.keys() - {"Django", "Python"}:
            versions.setdefault(name, set()).add(said[name])
    lines = [
        f"| Django | Python | {' | '.join(columns)} |",
        f"|---|---|{'---|' * len(columns)}",
        *(
            f"| {row} | {' | '.join(found.get(c, '–') for c in columns)} |"
            for row, found in rows.items()
        ),
        "",
    ]
    used = "; ".join(f"{name} {', '.join(sorted(versions[name]))}" for name in sorted(versions))
    green = sum(part.is_green for part in parts)
    lines.append(
        f"Steps of the tutorial · pages in three languages · examples of the guides. {green} of"
        f" {len(parts)} cells passed on {machine['date']}, commit {machine['commit']}, with {used}."
    )
    if absent:
        lines.append(f"Python {', '.join(absent)} was not on this machine.")
    return [re.sub(r" +$", "", line) for line in lines]
