"""Divides what ``make test-all`` runs into parts, of minutes each. Standard library only.

A part is a share of the tests of some folders on one database, or on one Django: LEG/FOLDER-SHARE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.legs import Leg
from tests.parts import Part, Parts

HERE = Path(__file__).resolve().parent
COLUMNS = ["tests", "failed", "skipped"]

# Folders that are parts of their own, and in how many shares; REST are all others.
REST = "rest"
SHARES = {"guarantees": 4, "spark": 3, REST: 3}
# Of the second server of a kind, only the folders where it can differ.
OF_A_SECOND_SERVER = {"guarantees": 3, "concurrency": 1}
# What brings its own servers is a leg of its own.
OWN_SERVERS = "own-servers"
ONCE = {"lab/scenarios": 4, "lab/ha": 3}
SHARES_OF_A_DJANGO = 2


def plan(databases: Sequence[str], djangos: Sequence[str]) -> dict[str, tuple[list[str], str]]:
    """Return the folders and the share of each part, leg by leg."""
    found: dict[str, tuple[list[str], str]] = {}
    of_a_leg = {OWN_SERVERS: ONCE}
    of_a_leg |= {db: SHARES if db.isalpha() else OF_A_SECOND_SERVER for db in databases}
    for leg, shares in of_a_leg.items():
        for folder, number in shares.items():
            folders = _rest() if folder == REST else [f"tests/{folder}"]
            name = f"{leg}/{Path(folder).name}"
            found |= {f"{name}-{at}": (folders, share) for at, share in _shares(number)}
    for leg in djangos:
        found |= {f"{leg}/quick-{at}": (["tests"], s) for at, s in _shares(SHARES_OF_A_DJANGO)}
    return found


def add(parts: Parts, leg: Leg) -> None:
    """Write down how the run of a part has ended, and what of it passed only at a second try."""
    green = leg.passed(at_once=False)
    failed = [*leg.report.get("failed", {})] or ([] if green else [f"exit status {leg.status}"])
    parts.add(
        leg.name,
        [
            len(leg.report.get("seconds", {})),
            0 if green else len(failed),
            leg.report.get("skipped", 0),
        ],
        leg.seconds,
        failed=failed,
        green=green,
        details=leg.report | {"failed": {}} if green else leg.report,
    )


def legs_of(parts: Sequence[Part]) -> list[Leg]:
    """Return each leg with what is known of its parts."""
    legs: dict[str, Leg] = {}
    for part in parts:
        leg = Leg(part.name, Path("python"), status=0)
        leg = legs.setdefault(leg.whole, Leg(leg.whole, Path("python"), status=0))
        leg.status = leg.status or int(not part.is_green)
        leg.seconds += part.seconds
        report = leg.report or {"on": {}, "seconds": {}, "failed": {}, "skipped": 0}
        leg.report = {
            "on": report["on"] | part.details.get("on", {}),
            "seconds": report["seconds"] | part.details.get("seconds", {}),
            "failed": report["failed"] | part.details.get("failed", {}),
            "skipped": report["skipped"] + part.details.get("skipped", 0),
        }
    return list(legs.values())


def _rest() -> list[str]:
    places = {_place(path.relative_to(HERE)) for path in HERE.rglob("test_*.py")}
    return [f"tests/{place}" for place in sorted(places - {*SHARES, *ONCE})]


def _place(path: Path) -> str:
    """Return the folder of ``tests/`` or ``tests/lab/`` in which a file is, or the file."""
    return "/".join(path.parts[: 2 if path.parts[0] == "lab" else 1])


def _shares(number: int) -> Iterator[tuple[int, str]]:
    yield from ((at, f"{at}/{number}") for at in range(1, number + 1))
