"""Packs sparkjobs and streams into a file, which Spark sends to executors that may lack them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from streams import rules

# Of streams the jobs need the rules only. All of it is sent, since the file comes first on the path
# of an executor: a part would hide the rest from a partitioner that imports an installed streams.
PACKAGES = (Path(__file__).parent, Path(rules.__file__).parent.parent)


@cache
def packed() -> str:
    """Return the path of a zip file with both packages; it is deleted when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ems-sparkjobs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "sparkjobs.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for package in PACKAGES:
            for found in sorted(package.rglob("*.py")):
                file.write(found, found.relative_to(package.parent))
    return str(path)
