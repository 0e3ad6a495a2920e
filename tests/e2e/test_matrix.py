"""One cell of `make matrix`: the newest Django that is here, on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import environments
from tests.matrix.cells import SQLITE, Cell, pythons_of
from tests.matrix.place import Place

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(900)]


def test_the_wheel_is_used_as_the_pages_say(wheel: Path, tmp_path: Path) -> None:
    django = next(one for one in reversed(environments.DJANGOS) if pythons_of(one))
    cell = Cell(django, pythons_of(django)[-1], SQLITE)
    place = Place(tmp_path / "env", cell.django, cell.python, wheel)
    for name in ("project", "suite"):
        (tmp_path / name).mkdir()
    steps, pages = place.use(cell, tmp_path / "project", "")
    assert steps > 30
    assert pages > 3 * 40
    assert place.run_guides(cell, tmp_path / "suite", "") > 20
