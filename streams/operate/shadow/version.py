"""Tells which version of the code a handler comes from."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

GIT_SECONDS = 5.0


def version_of(module: str) -> str:
    """Return what git describes as the version of ``module``, or its distribution; "" if neither.

    It ends with ``-dirty`` if files of the working tree have changed since the commit.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    return (_of_git(Path(file).parent) if file else "") or _of_distribution(module)


def _of_git(folder: Path) -> str:
    command = ["git", "-C", str(folder), "describe", "--always", "--tags", "--dirty"]
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # git is not installed, or hangs
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _of_distribution(module: str) -> str:
    package = module.partition(".")[0]
    for name in metadata.packages_distributions().get(package, ()):
        return f"{name} {metadata.version(name)}"
    return ""
