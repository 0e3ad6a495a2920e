"""What processes note outside of the database: a server that is lost takes no note with it.

Each process appends lines to a file of its own; a line is on the way to the disk when the call
returns, so a killed process loses none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(os.environ.get("EMS_TEST_FOLDER", "/nonexistent"))


class Notes:
    """Appends to the file of one process: ``Notes("sent", "P1")``."""

    def __init__(self, kind: str, name: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(FOLDER / f"{kind}-{name}.notes", flags, 0o600)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def noted(kind: str, folder: Path) -> Iterator[list[str]]:
    """Yield the words of each line that the processes have noted."""
    for path in sorted(folder.glob(f"{kind}-*.notes")):
        for line in path.read_text().splitlines():
            yield line.split()
