"""Prints the summary of a run, and keeps its durations. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.legs import Leg

DURATIONS = Path(__file__).resolve().parent / "durations.json"
SLOWEST = 40
WORTH_NOTING = 1.0  # seconds: what durations.json names one by one


def summary(legs: list[Leg]) -> Iterator[str]:
    """Yield the last lines of a run: what was slow, on what it ran, and what failed."""
    took = sorted(
        ((seconds, leg.name, name) for leg in legs for name, seconds in _seconds(leg).items()),
        reverse=True,
    )
    yield f"\nthe {SLOWEST} slowest, in seconds:"
    for seconds, leg_name, name in took[:SLOWEST]:
        yield f"{seconds:7.1f}  {leg_name:10} {name}"
    yield ""
    for leg in legs:
        on = leg.report.get("on", {})
        yield f"{leg.name:10} on " + ", ".join(f"{name} {version}" for name, version in on.items())
    yield "\nleg        result    tests  failed  skipped  seconds"
    yield from map(str, legs)
    for leg in legs:
        for name, error in leg.report.get("failed", {}).items():
            twice = " (twice)" if name in leg.report_again.get("failed", {}) else ""
            yield f"\n{leg.name}: {name}{twice}\n    {error}"


def keep(legs: list[Leg], path: Path, *, what: str, minutes: float) -> None:
    """Write down how long each folder and each slow test took, on each database."""
    kept = {leg.name: _kept(leg) for leg in legs}
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"what": what, "minutes": round(minutes, 1), "legs": kept}, indent=1)
    path.write_text(text + "\n")


def _kept(leg: Leg) -> dict[str, Any]:
    seconds = _seconds(leg)
    folders: dict[str, float] = {}
    for name, took in seconds.items():
        folder = str(Path(name.partition("::")[0]).parent)
        folders[folder] = folders.get(folder, 0) + took
    slow = {name: took for name, took in seconds.items() if took >= WORTH_NOTING}
    return {
        "on": leg.report.get("on", {}),
        "tests": len(seconds),
        "seconds": round(leg.seconds),
        "folders": {name: round(folders[name], 1) for name in sorted(folders)},
        "slow": {name: round(slow[name], 1) for name in sorted(slow)},
    }


def _seconds(leg: Leg) -> dict[str, float]:
    found: dict[str, float] = leg.report.get("seconds", {})
    return found
