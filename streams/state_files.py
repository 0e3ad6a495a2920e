"""Writes the files in EMS["STATE_DIR"]: as a whole, and on the disk before they have their name."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streams.errors import StateUnusable

LEGIBLE = 24  # characters of each name that a file's name shows
BUSY_SECONDS = 0.02  # until the next look whether another process has freed a file


def legible(name: str) -> str:
    """Return the beginning of a name as a part of a file's name."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name[:LEGIBLE])


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise StateUnusable for what the system refuses with the file in this block."""
    try:
        yield
    except OSError as error:
        raise StateUnusable(
            f"EMS['STATE_DIR'] cannot be used, for {path}: {error.strerror or error}."
        ) from error


def opened_lock(path: Path) -> int:
    """Open the file of a lock, and make its folder; return the descriptor."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


@contextmanager
def alone_with(path: Path, patience: float = 0.0) -> Iterator[bool]:
    """Yield True while no other process is in this block for the same file.

    Yield False if one has been there for ``patience`` seconds. Raises StateUnusable.
    """
    with usable(path):
        fd = opened_lock(path)
        try:
            yield _locked(fd, time.monotonic() + patience)
        finally:
            # Not by closing it alone: a child that was forked meanwhile has the descriptor, too.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _locked(fd: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(BUSY_SECONDS)
        else:
            return True


def replace(path: Path, text: str) -> None:
    """Replace a file as a whole: a crash leaves either the old text or the new one.

    The caller has a lock, so that nobody else does it now. Raises StateUnusable.
    """
    new = path.with_suffix(".new")
    with usable(new):
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync(path.parent)


def _sync(directory: Path) -> None:
    """Force the directory to the disk, so that the replaced file name is there, too."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
