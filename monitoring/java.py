"""Tells whether this host can run the Spark jobs, and what to install if it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from django.utils.translation import gettext as _

JAVA_AT_LEAST = 17
# Spark's own environment variable: the Python of the jobs, if it is not that of the project.
PYTHON = "PYSPARK_PYTHON"
PATIENCE_SECONDS = 30
# A program that is absent, may not be executed or does not answer counts as not installed.
CANNOT_RUN = (OSError, subprocess.SubprocessError)
# The environments in which nothing was missing.
_complete: set[tuple[str | None, ...]] = set()
INSTALL = "pip install 'django-ems[spark]'"


def missing() -> str:
    """Return one line that says what to install; empty if nothing is missing."""
    absent = []
    if not _has_pyspark():
        absent.append(INSTALL)
    version = java_version()
    if version is None or version < JAVA_AT_LEAST:
        absent.append(f"Java {JAVA_AT_LEAST} or newer (JAVA_HOME, or java on PATH)")
    return _("Spark jobs need: %s") % " and ".join(absent) if absent else ""


def missing_now() -> str:
    """Return the same; a host that had all is not asked again, since that starts Java and Python.

    Unless its environment has changed, which says where they are.
    """
    where = tuple(os.environ.get(name) for name in ("JAVA_HOME", "PATH", PYTHON))
    if where in _complete:
        return ""
    if not (lacking := missing()):
        _complete.add(where)
    return lacking


def lacking_pyspark() -> str:
    """Return what ``missing`` says where only pyspark is missing."""
    return f"Spark jobs need: {INSTALL}"


def python() -> str:
    """Return the path of the Python that runs the jobs."""
    return os.environ.get(PYTHON) or sys.executable


def _has_pyspark() -> bool:
    if python() == sys.executable:
        return find_spec("pyspark") is not None
    code = "import sys, importlib.util; sys.exit(importlib.util.find_spec('pyspark') is None)"
    try:
        done = subprocess.run([python(), "-c", code], timeout=PATIENCE_SECONDS)  # noqa: S603
    except CANNOT_RUN:
        return False
    return done.returncode == 0


def java_version() -> int | None:
    """Return the main version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - the program that Spark would start
            [java, "-version"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
    except CANNOT_RUN:
        return None
    # The output is like: openjdk version "17.0.15"; before Java 9: "1.8.0"
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else None
