"""Keeps the classes that a brief JVM has loaded in a file, which the next one maps into its memory.

To load the same classes each time is a third of what such a JVM does. The file (AppCDS) depends on
the Java and the jars, and on nothing of ours; a JVM that cannot use it loads as always.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from sparkjobs import jvm

# Seconds that a JVM gets to write it: some thirty seconds of work, on a machine that may be busy.
PATIENCE_SECONDS = 300.0
DAY = 24 * 3600.0
# Seconds after its last use until a file is deleted. Several environments share the folder.
UNUSED_SECONDS = 7 * DAY
# What the JVM says of classes that it cannot keep, which is no matter of the user's.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"


class ClassArchive:
    """Knows the file of this Java and this pyspark; ``path`` is None where there can be none."""

    def __init__(self) -> None:
        self.path = _path()
        self._new: Path | None = None

    def options(self, *, writes: bool) -> str:
        """Return the options of a JVM that uses the file; or that writes it at its end.

        One JVM in a day tries to write a file that is not there.
        """
        if self.path is None:
            return ""
        with suppress(OSError):
            os.utime(self.path)  # it is in use
        _delete_old(self.path.parent)
        if self.path.exists():
            return f"{QUIET} -Xshare:auto -XX:SharedArchiveFile={self.path}"
        if not writes or not _begins(self._tried(self.path)):
            return ""
        # Written under another name: nobody must use what a killed JVM has left.
        self._new = self.path.with_suffix(f".{os.getpid()}")
        return f"{QUIET} -XX:ArchiveClassesAtExit={self._new}"

    def keep(self, spark: SparkSession) -> None:
        """End the session and its JVM if that writes the file, and keep it.

        Only for a JVM with the options to write. What it has not loaded by now is not in the file.
        """
        if self.path is None or self._new is None:
            return
        ended = jvm.end(spark, PATIENCE_SECONDS)
        with suppress(OSError):
            if ended:
                self._new.replace(self.path)
                self._tried(self.path).unlink()
            else:
                self._new.unlink()

    @staticmethod
    def _tried(path: Path) -> Path:
        return path.with_suffix(".tried")


def _begins(mark: Path) -> bool:
    """Note that this process tries; return False if another has, or nothing can be written."""
    try:
        mark.touch(exist_ok=False)
    except OSError:
        return False
    return True


def _delete_old(folder: Path) -> None:
    """Delete files that nobody uses, and after a day what attempts have left."""
    now = time.time()
    for file in folder.glob("spark-*"):
        with suppress(OSError):
            if now - file.stat().st_mtime > (UNUSED_SECONDS if file.suffix == ".jsa" else DAY):
                file.unlink()


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
    jars = f"{os.environ.get('SPARK_HOME', '')} {pyspark.__file__} {pyspark.__version__}"
    of = f"{java} {java.stat().st_mtime_ns} {jars}"
    return folder / f"spark-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
