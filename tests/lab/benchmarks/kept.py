"""The figures that the pages show: one JSON file for each section, docs/about/benchmarks/data/.

Standard library only: `make peers` runs without what the other benchmarks need.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "docs" / "about" / "benchmarks" / "data"
# Of the last run in this checkout: section → seconds.
LAST = ROOT / ".pytest_cache" / "benchmarks.json"
PACKAGES = ("Django", "mysqlclient")
# What is measured, and what measures. A run writes figures and pages, which change neither.
CODE = ("streams", "monitoring", "sparkjobs", "emsproject", "tests", "pyproject.toml")


def keep(section: str, found: dict[str, Any], **about: Any) -> Path:
    """Write what a section has found, and on what, for the pages; return the file."""
    DATA.mkdir(exist_ok=True)
    path = DATA / f"{section}.json"
    whole = {"measured": {**machine(), **about}, **found}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    return path


def kept(section: str) -> dict[str, Any]:
    """Return what was kept of a section; {} if nothing was."""
    path = DATA / f"{section}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def machine() -> dict[str, Any]:
    """Say when, on what and of which commit it is measured."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def seconds_of(section: str) -> float | None:
    """Return how long a section takes: as the last run here, or as the run that the pages show."""
    return _last().get(section) or kept(section).get("seconds")


def run_of(sections: Iterable[str]) -> str:
    """Say of which runs seconds_of() speaks."""
    here = _last()
    if all(section in here for section in sections):
        return "as the last run here"
    return "as the run that the pages show, on its machine"


def note_seconds(section: str, seconds: float) -> None:
    LAST.parent.mkdir(exist_ok=True)
    LAST.write_text(json.dumps({**_last(), section: round(seconds, 1)}, indent=1) + "\n")


def _last() -> dict[str, float]:
    last: dict[str, float] = json.loads(LAST.read_text()) if LAST.exists() else {}
    return last


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    asked = [*git, "rev-parse", "--short", "HEAD"], [*git, "status", "--porcelain", "--", *CODE]
    commit, changes = (subprocess.run(one, capture_output=True, text=True).stdout for one in asked)
    return f"{commit.strip() or 'unknown'}{'-dirty' if changes else ''}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
