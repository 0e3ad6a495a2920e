"""Finds other versions of Python. Standard library only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

# The venv module is checked, too, since on Debian it may be a separate package.
CHECK = "import sys, venv, sqlite3; sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1])"


def find(version: str) -> str | None:
    """Return a Python of this version, e.g. "3.12", on PATH or of pyenv; None if there is none."""
    return next((path for path in _candidates(version) if _is(path, version)), None)


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if on_path := shutil.which(f"python{version}"):
        yield on_path  # maybe a shim that then refuses to run
    if pyenv := shutil.which("pyenv"):
        said = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True)
        if said.returncode == 0:
            yield f"{said.stdout.strip()}/bin/python"


def _is(path: str, version: str) -> bool:
    try:
        return subprocess.run([path, "-c", CHECK, version], capture_output=True).returncode == 0
    except OSError:
        return False
