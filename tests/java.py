"""Finds the Java that Spark needs. Standard library only.

An installed one (JAVA_HOME, PATH) is used if it is new enough; otherwise Debian's package, unpacked
into the cache like the servers: see packages.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.packages import Unavailable, unpacked

OLDEST = 17
# The packages of Debian and Ubuntu; the first one that the machine's release has is used.
KINDS = ("java-17", "java-21", "java-25")


def java_environment() -> dict[str, str]:
    """Return the environment in which a process finds Java; raises Unavailable."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    if program and version(program) >= OLDEST:
        return {}
    reasons = []
    for kind in KINDS:
        try:
            found = next(unpacked(kind).glob("usr/lib/jvm/java-*/bin/java"))
        except Unavailable as reason:
            reasons.append(str(reason))
            continue
        home = str(found.parent.parent)
        if version(str(found)) < OLDEST:
            raise Unavailable(f"{found} does not run: install openjdk-17-jre-headless")
        return {"JAVA_HOME": home}
    raise Unavailable(f"no Java {OLDEST} or newer: {reasons[0]}")


def version(program: str) -> int:
    """Return the major version of a java program; 0 if it does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True)
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found and done.returncode == 0 else 0
