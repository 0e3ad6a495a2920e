"""Maps a file in EMS["STATE_DIR"] in which the worker threads note how far they are.

There is one for each process and database. It outlives a kill -9 of the process, but not its host:
nothing is forced to the disk. While the process lives it has a lock on the file, so whoever gets
the lock knows that the process is dead. docs/decisions/0012-deaths.md has the reasons.
"""

from __future__ import annotations

import fcntl
import json
import logging
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from django.db import connections

from streams.conf import settings
from streams.deliver.slot import (
    SLOT_SIZE,
    Copies,
    Noted,
    ProgressSlot,
    SlotDamaged,
    UnreadSlot,
    newest,
    read,
)
from streams.errors import StateUnusable
from streams.logs import event
from streams.state_files import legible, opened_lock, usable

logger = logging.getLogger("streams.supervisor")

SUFFIX, NEW = ".progress", ".new"
# The first bytes; the number is that of the format.
MAGIC = b"EMS progress 1\n\0"
HEADER_AT, HEADER_COPY = 1024, 1024
SLOTS_AT = 4096
# Where locks and memory are not those of one kernel, a live process could be taken for a dead one.
NETWORK = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
    *("gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
}


class NotOurs(Exception):
    """Why a file is left as it is: of another database, format or host, damaged or a copy."""


def folder() -> Path:
    """Return the folder of the files. The path is absolute: a handler may change to another one."""
    return Path(settings().STATE_DIR).absolute()


def stem(using: str) -> str:
    """Return the beginning of the names of all files of a database."""
    return f"{legible(using)}-{_identity(using)[:16]}-"


def _identity(using: str) -> str:
    """Tell which database it is: ids of deliveries are the same in several."""
    given = connections[using].settings_dict
    parts = [given["ENGINE"], given["HOST"], given["PORT"], given["NAME"], settings().NAMESPACE]
    return sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def _boot() -> str:
    """Return what is another one after a restart of the host; "" where the system does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def kind_of(path: Path) -> str:
    """Return the kind of the file system of ``path``; "" where the system does not say."""
    kind, length = "", 0
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            point = fields[4].encode().decode("unicode_escape")  # a blank in it is \\040
            if path.is_relative_to(point) and len(point) >= length:
                kind, length = fields[fields.index("-") + 1], len(point)
    return kind


def _size(threads: int) -> int:
    return SLOTS_AT + threads * SLOT_SIZE


class ProgressFile:
    """The file of this process for one database, locked until the end of the process.

    ``threads`` is how many slots it has. Raises StateUnusable.
    """

    def __init__(self, using: str, threads: int) -> None:
        self._free = [SLOTS_AT + number * SLOT_SIZE for number in range(threads)]
        self._slots: dict[str, ProgressSlot] = {}
        name = f"{stem(using)}{os.getpid()}-{uuid4().hex[:12]}{SUFFIX}"
        self.path = folder() / name
        with usable(self.path):
            new = self.path.with_suffix(NEW)
            self._memory: Any = None
            self._fd = opened_lock(new)
            _files.add(self)  # before it has the lock, which a child that is forked now would get
            try:
                if (kind := kind_of(folder().resolve())) in NETWORK:
                    raise OSError(0, f"{kind} is a file system of a network")
                self._map(using, threads)
                # Only now it has its name: nobody has seen it without its lock.
                new.replace(self.path)
            except BaseException:
                with suppress(OSError):
                    new.unlink()
                self.leave()
                raise

    def _map(self, using: str, threads: int) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = _size(threads)
        # All of it has its place on the disk: a store into a page without one would be a SIGBUS.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        os.pwrite(self._fd, MAGIC.ljust(size, b"\0"), 0)
        self._memory = mmap.mmap(self._fd, size)
        self._header = Copies(self._memory, HEADER_AT, HEADER_COPY)
        self._about = {
            "database": _identity(using),
            "boot": _boot(),
            "inode": os.fstat(self._fd).st_ino,
            "pid": os.getpid(),
            "slots": threads,
        }

    def name(self, client_id: str) -> None:
        """Note the id of the client, before its first claim."""
        self._header.say(json.dumps({**self._about, "client": client_id}).encode())
        self._header.put(0, 0, 0)

    def slot(self, thread: str) -> ProgressSlot:
        """Return the slot of a worker thread; only that thread writes to it."""
        if thread not in self._slots:
            self._slots[thread] = ProgressSlot(self._memory, self._free.pop(0))
        return self._slots[thread]

    def close(self, *, keep: bool = False) -> None:
        """Delete the file, and free its lock; with ``keep`` others are to find it.

        Then the lock ends with the process, since a thread may still be in a call.
        """
        if keep:
            return
        with suppress(OSError):
            self.path.unlink()
        self.leave()

    def leave(self) -> None:
        """Free the lock if no other process has it; what is noted from now on is lost.

        A child that a handler forks does so: as long as it had the lock, nobody would notice the
        death of its parent. It never unlocks: the lock is that of the parent.
        """
        if self._fd < 0:
            return
        if self._memory is not None:
            nowhere = bytearray(len(self._memory))
            for copies in (self._header, *(slot.copies for slot in self._slots.values())):
                copies.move(nowhere)
            self._memory.close()  # it has a descriptor of its own
        os.close(self._fd)
        self._fd = -1


_files: WeakSet[ProgressFile] = WeakSet()


def _leave_in_child() -> None:
    for file in list(_files):
        with suppress(OSError):
            file.leave()


os.register_at_fork(after_in_child=_leave_in_child)


class NoFile:
    """What stands for the file where there is none: the notes are kept for nobody."""

    def name(self, client_id: str) -> None:
        """Do nothing."""

    def slot(self, thread: str) -> UnreadSlot:
        """Return a slot that nobody reads."""
        return UnreadSlot()

    def close(self, *, keep: bool = False) -> None:
        """Do nothing."""


def opened(using: str, threads: int) -> ProgressFile | NoFile:
    """Return the file of this process, or say why it has none: then the end of a lease decides."""
    try:
        return ProgressFile(using, threads)
    except StateUnusable as error:
        logger.warning(
            "After a kill of this process its messages wait for the end of its lease: %s",
            error,
            extra=event("progress.unusable", database=using),
        )
        return NoFile()


@dataclass(frozen=True)
class Left:
    """What a process that has died has left: the id of its client, and what its slots say.

    ``whole``: a claim of it that no slot names had not begun.
    """

    client_id: str
    slots: list[Noted]
    whole: bool


@contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Yield the descriptor of a file whose process is dead, alone; None if it lives.

    None, too, if another process has been faster. Raises OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):  # it is gone, or that of another user
        yield None
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield fd if _is_at(fd, path) else None
    finally:
        os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Tell whether the file is still there: another process may have deleted it meanwhile."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def left_in(fd: int, using: str) -> Left:
    """Read what a process that has died has left. Raises NotOurs, OSError."""
    memory = os.pread(fd, os.fstat(fd).st_size, 0)
    if not memory.startswith(MAGIC):
        raise NotOurs("it is of another version of EMS, or damaged")
    try:
        if len(memory) < SLOTS_AT:
            raise SlotDamaged
        found = newest(memory, HEADER_AT, HEADER_COPY)
        if found is None:
            return Left("", [], whole=False)  # it has died before its first claim
        about = json.loads(found[-1].rstrip(b"\0"))
        if len(memory) != _size(about["slots"]):
            raise SlotDamaged
    except (SlotDamaged, ValueError) as error:
        raise NotOurs("it is damaged") from error
    if about["database"] != _identity(using):
        raise NotOurs("it is of another database")
    if about["inode"] != os.fstat(fd).st_ino:
        raise NotOurs("it is a copy")
    if about["boot"] != _boot():
        raise NotOurs("the host was restarted since: it may be older than what was done")
    slots: list[Noted] = []
    whole = True
    for number in range(about["slots"]):
        try:
            noted = read(memory, SLOTS_AT + number * SLOT_SIZE)
        except SlotDamaged:
            whole = False
        else:
            slots += [noted] if noted else []
    return Left(about["client"], slots, whole)
