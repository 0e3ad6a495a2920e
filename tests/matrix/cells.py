"""Names the cells of the matrix, and what of it cannot be had here. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests import environments, pythons

# A release that is not there yet. It may fail, and its cells are in the table all the same.
NEXT = "6.2"
DRIVERS = ("mysqlclient", "pymysql")
SQLITE = "sqlite"


@dataclass(frozen=True)
class Cell:
    """One Python, Django, server and driver."""

    django: str
    python: str
    server: str
    driver: str = ""  # none on SQLite

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.django, self.python, self.server, self.driver)))

    @property
    def may_fail(self) -> bool:
        return self.django == NEXT


def pythons_of(django: str) -> list[str]:
    """Return the versions of Python on which this Django runs, and which are here."""
    known = environments.DJANGOS.get(django) or [*environments.DJANGOS.values()][-1]
    return [version for version in sorted(known) if pythons.find(version)]


def absent_pythons() -> list[str]:
    """Return the versions of Python that EMS should run on and that are not here."""
    known = {version for versions in environments.DJANGOS.values() for version in versions}
    return [version for version in sorted(known) if not pythons.find(version)]


def cells(servers: Sequence[str], *, with_next: bool) -> list[Cell]:
    """Return all cells: those of one Python and Django, which share an environment, together."""
    djangos = [*environments.DJANGOS, *([NEXT] if with_next else [])]
    return [
        Cell(django, python, server, driver)
        for django in djangos
        for python in pythons_of(django)
        for server in servers
        for driver in (DRIVERS if server != SQLITE else ("",))
    ]
