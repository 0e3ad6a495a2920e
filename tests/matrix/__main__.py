"""``python -m tests.matrix``: exit status 0 if each cell is green on this commit, or may fail.

The cells are parts (see tests/parts.py): a run that was stopped goes on. With ``--keep`` the page
docs/reference/versions.md has the table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tests.e2e.host_project import ROOT, build_wheel
from tests.lab.benchmarks.kept import machine
from tests.matrix.cells import SQLITE, Cell, absent_pythons, cells
from tests.matrix.place import Place, Unusable, version_of
from tests.matrix.table import keep
from tests.packages import url_variable
from tests.parts import Parts, add_arguments

COLUMNS = ["steps", "pages", "examples"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make matrix", allow_abbrev=False)
    add_arguments(parser)
    parser.add_argument("--keep", action="store_true", help="write the table into the page")
    parser.add_argument("--next", action="store_true", help="also the Django that is to come")
    options = parser.parse_args()
    urls = {SQLITE: ""} | {
        server: url
        for server in os.environ["EMS_MATRIX_SERVERS"].split(",")
        if (url := os.environ.get(url_variable(server)))
    }
    all_cells = {cell.name: cell for cell in cells([*urls], with_next=options.next)}
    parts = Parts("matrix", [*all_cells], COLUMNS)
    chosen = [all_cells[name] for name in parts.chosen(options)]
    with tempfile.TemporaryDirectory(prefix="ems-matrix-") as folder:
        run_all(chosen, parts, urls, Path(folder))
    print("\n".join([*parts.table(), *parts.conclusion()]))
    for version in absent_pythons():
        print(f"\n*** NOT TESTED on Python {version}: it is not on PATH or in pyenv. ***")
    if options.keep:
        keep(list(parts.known()), machine(), absent_pythons())
    green = {part.name for part in parts.known() if part.is_green}
    return int(not all(cell.may_fail or name in green for name, cell in all_cells.items()))


def run_all(chosen: Sequence[Cell], parts: Parts, urls: dict[str, str], folder: Path) -> None:
    """Run the cells; those of one Python and Django share an environment, one after the other."""
    if not chosen:
        return
    wheel = build_wheel(folder)
    for (django, python), some in groupby(chosen, lambda cell: (cell.django, cell.python)):
        name, started_at = f"{django}-{python}", time.monotonic()
        group = list(some)
        try:
            place = Place(folder / name, django, python, wheel)
        except Unusable as reason:
            for cell in group:
                seconds = time.monotonic() - started_at
                parts.add(cell.name, [0, 0, 0], seconds, failed=[str(reason)[-2000:]], green=False)
                print(f"{cell.name}: cannot be installed: {str(reason)[-300:]}", flush=True)
            continue
        for cell in group:
            run_one(cell, place, parts, urls[cell.server], folder)


def run_one(cell: Cell, place: Place, parts: Parts, url: str, folder: Path) -> None:
    """Run one cell. The examples come last: their tools are in no empty environment."""
    counts, failed, started_at = [0, 0, 0], [], time.monotonic()
    inside = Path(tempfile.mkdtemp(dir=folder))
    try:
        counts[:2] = place.use(cell, mkdir(inside / "project"), url)
        counts[2] = place.run_guides(cell, mkdir(inside / "suite"), url)
    except Exception as error:  # noqa: BLE001 - the table says of each cell what it came to
        failed = [f"{type(error).__name__}: {str(error)[-3000:]}"]
        print(f"{cell.name}: {failed[0]}", file=sys.stderr)
    seconds = time.monotonic() - started_at
    details = {"versions": place.versions() | version_of(url)}
    parts.add(cell.name, counts, seconds, failed=failed, green=not failed, details=details)
    print(
        f"{cell.name:32} {'FAILED' if failed else 'passed'} {counts} {seconds:6.0f} s", flush=True
    )


def mkdir(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
