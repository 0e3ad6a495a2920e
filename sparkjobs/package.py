"""Packs sparkjobs itself into a file, which Spark sends to executors that may lack it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from zipfile import ZipFile

HERE = Path(__file__).parent


@cache
def packed() -> str:
    """Return the path of a zip file with this package; it is deleted when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ems-sparkjobs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "sparkjobs.zip"
    with ZipFile(path, "w") as file:
        for found in sorted(HERE.rglob("*")):
            if found.is_file() and "__pycache__" not in found.parts:
                file.write(found, found.relative_to(HERE.parent))
    return str(path)
