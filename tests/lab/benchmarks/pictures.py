"""Writes the pictures and the tables of the pages from the kept figures.

``python -m tests.lab.benchmarks.pictures``: SVG files into docs/about/benchmarks/, and the tables
into its pages, each between ``<!-- NAME -->`` and ``<!-- /NAME -->``. A test sees that nobody has
changed them by hand. What was not measured yet has a picture and a table that say so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from tests.lab.benchmarks import kept, tables
from tests.lab.benchmarks.charts import charts

FOLDER = kept.DATA.parent
PAGES = (
    *(
        "core.md",
        "failover.md",
        "http.md",
        "pages.md",
        "peers.md",
        "plan.md",
        "scenarios.md",
        "spark.md",
        "stress.md",
        "sustained.md",
    ),
    "two-phase.md",
)
BLOCK = re.compile(r"(<!-- (?P<name>[\w-]+) -->\n).*?(<!-- /(?P=name) -->)", re.DOTALL)


def rendered() -> dict[Path, str]:
    """Return the pictures and pages as they are to be, by their files."""
    found = {FOLDER / f"{name}.svg": chart.svg() for name, chart in charts().items()}
    for name in PAGES:
        page = FOLDER / name
        found[page] = BLOCK.sub(_block, page.read_text())
    return found


def _block(match: re.Match[str]) -> str:
    makers: dict[str, Callable[[], str]] = tables.TABLES
    return f"{match[1]}\n{makers[match['name']]()}\n\n{match[3]}"


def main() -> int:
    wanted = rendered()
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(kept.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
