"""Keeps the positions of a client of a broadcast group in a file in EMS["STATE_DIR"].

There is one file for each (database, topic, group, name).
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakSet

from streams.errors import NameTaken, PositionDamaged
from streams.process.broadcast.position import Position, Positions
from streams.state_files import legible, opened_lock, replace, usable

# Not the host's name: a container has a new one after each deployment, and its client would begin
# as a new one and miss messages. A second process of a host gets NameTaken, which says to choose
# another name.
DEFAULT_NAME = "default"

VERSION = 1


@dataclass(frozen=True)
class Place:
    """The owner of positions. ``database`` is its name: hosts and aliases may change."""

    database: str
    topic: str
    group: str
    name: str

    def stem(self) -> str:
        """Return the file's name without suffix, made unique by a hash.

        The names in it may have any length and characters; only a part of each is shown.
        """
        digest = sha256("\0".join(astuple(self)).encode("utf-8", "surrogatepass")).hexdigest()
        parts = (self.group, self.topic, self.name)
        return "-".join([*map(legible, parts), digest[:16]])


class PositionFile(Positions):
    """Positions on the disk, locked for this process until ``close``.

    The file is replaced as a whole and forced to the disk, so a crash leaves either the old
    positions or the new ones.
    Raises StateUnusable, NameTaken, PositionDamaged.
    """

    def __init__(self, directory: Path, place: Place) -> None:
        self._place = place
        self.path = directory / f"{place.stem()}.json"
        self._lock = Lock(self.path.with_suffix(".lock"), place)
        try:
            super().__init__(self._load())
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def save(self) -> None:
        partitions = {
            str(number): {
                "offset": position.offset,
                "message_id": position.message_id,
                "sequenced_at": position.sequenced_at and position.sequenced_at.isoformat(),
            }
            for number, position in sorted(self.known.items())
        }
        content = {"version": VERSION, **vars(self._place), "partitions": partitions}
        replace(self.path, json.dumps(content, ensure_ascii=True, indent=1))
        self.taken = True

    def _load(self) -> dict[int, Position] | None:
        with usable(self.path):
            if not self.path.exists():
                return None
            text = self.path.read_bytes()
        try:
            content = json.loads(text)
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}")
            if Place(*(content[key] for key in vars(self._place))) != self._place:
                raise ValueError("it belongs to another client")
            return {
                int(number): _position(values) for number, values in content["partitions"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise PositionDamaged(
                f"The positions in {self.path} cannot be read ({type(error).__name__}: {error})."
                " Move the file away, and the client begins as a new one; or put back a copy."
            ) from error


def _position(values: Any) -> Position:
    offset, message_id, instant = (values[k] for k in ("offset", "message_id", "sequenced_at"))
    for number in (offset, 0 if message_id is None else message_id):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{number!r} is not a number")
    sequenced_at = None if instant is None else datetime.fromisoformat(instant)
    if sequenced_at and sequenced_at.tzinfo is None:
        raise ValueError(f"{instant} has no time zone")
    return Position(offset, message_id, sequenced_at)


class Lock:
    """A lock on a file for one process; the operating system frees it when the process dies."""

    def __init__(self, path: Path, place: Place) -> None:
        self._fd = -1
        with usable(path):
            fd = opened_lock(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                holder = f"{os.uname().nodename} {os.getpid()}"
                os.ftruncate(fd, 0)
                os.write(fd, holder.encode())
            except BlockingIOError as error:
                holder = os.pread(fd, 200, 0).decode(errors="replace")
                os.close(fd)
                raise NameTaken(_taken(place, holder)) from error
            except BaseException:
                os.close(fd)
                raise
        self._fd = fd
        _locks.add(self)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_locks: WeakSet[Lock] = WeakSet()


def _forget_locks() -> None:
    """Release the locks in a child that a handler forks: it would hold them while it lives."""
    for lock in _locks:
        with suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_forget_locks)


def _taken(place: Place, holder: str) -> str:
    return (
        f"Another process ({holder or '?'}) is the client {place.name!r} of {place.group} on"
        f" {place.topic}. Processes that share EMS['STATE_DIR'] need names of their own:"
        " ems_consume --name NAME."
    )
