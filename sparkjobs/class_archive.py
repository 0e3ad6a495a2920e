"""Keeps the classes that a brief JVM has loaded in a file, which the next one maps into its memory.

To load the same classes each time is a third of what such a JVM does. The file (AppCDS) depends on
the Java and the jars, and on nothing of ours; a JVM that cannot use it loads as always.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from sparkjobs import jvm

# Seconds that a JVM gets to write it: some thirty seconds of work, on a machine that may be busy.
PATIENCE_SECONDS = 300.0
# What the JVM says of classes that it cannot keep, which is no matter of the user's.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"


class ClassArchive:
    """Knows the file of this Java and this pyspark; ``path`` is None where there can be none."""

    def __init__(self) -> None:
        self.path = _path()
        # Written under another name: nobody must use what a killed JVM has left.
        self._new = self.path and self.path.with_suffix(f".{os.getpid()}")

    def options(self, *, writes: bool) -> str:
        """Return the options of a JVM that uses the file; or that writes it at its end."""
        if self.path is None:
            return ""
        if self.path.exists():
            return f"{QUIET} -Xshare:auto -XX:SharedArchiveFile={self.path}"
        return f"{QUIET} -XX:ArchiveClassesAtExit={self._new}" if writes else ""

    def keep(self, spark: SparkSession) -> None:
        """End the session and its JVM if that writes the file, and keep it in place of older ones.

        Only for a JVM with the options to write. What it has not loaded by now is not in the file.
        """
        if self.path is None or self._new is None or self.path.exists():
            return
        jvm.end(spark, PATIENCE_SECONDS)
        with suppress(OSError):
            self._new.replace(self.path)
            for other in self.path.parent.glob("spark-*"):
                if other != self.path:
                    other.unlink()


def _path() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if not cache or not java.is_file():
        return None
    folder = Path(cache) / ("" if "XDG_CACHE_HOME" in os.environ else ".cache") / "django-ems"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError:
        return None
    # A JVM runs what is in the file: nobody else may write it. Options end at a blank.
    if about.st_uid != os.getuid() or about.st_mode & 0o022 or " " in str(folder):
        return None
    java = java.resolve()
    of = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    return folder / f"spark-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
