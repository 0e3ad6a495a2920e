"""Keeps on the disk of this host how far each log had come, for the processes that start later.

What a process remembers (ends.py) is gone when it ends. So each process that gives offsets or hands
them out writes it down, in a file in EMS["STATE_DIR"] that all processes of the host share for a
database. A process that starts takes it up before it gives an offset: then a backup is noticed that
was restored while none ran. docs/decisions/0011-kept-ends.md has the reasons.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connections

from streams.conf import settings
from streams.database.emptied import in_test_process
from streams.database.remembered import Forgettable
from streams.database.retrying import retrying
from streams.errors import StateUnusable
from streams.log import ends
from streams.log.ends import End
from streams.logs import event
from streams.models import Partition
from streams.state_files import alone_with, legible, replace, usable

logger = logging.getLogger("streams.rewinds")

VERSION = 1
# At least so many seconds lie between two writes of a process. A kill -9 loses what it has seen
# since the last one.
EVERY_SECONDS = 3.0
# A file of more logs is written less often, in proportion to them, so that each process uses about
# 1 or 2 % of its time for it: it took 25 ms for 1,000 logs, and 0.5 s for 10,000.
LARGE = 1000
# But at most so many seconds lie between two writes: a jump passes MARGIN offsets (rewinds.py),
# which a log gets in this time at 3,333 messages a second.
AT_MOST_SECONDS = 30.0
# After so many seconds it is tried again to write what could not be written.
UNUSABLE_SECONDS = 60.0
# How many seconds a process that ends waits while another one writes.
PATIENCE_SECONDS = 1.0
# How many logs the file keeps that the database has not, the newest ones: deleted ones, and those
# that a restore has lost and that may be made again.
ABSENT_AT_MOST = 1000


class LogId(NamedTuple):
    """The identity of a log. A topic that was deleted and created again has another one."""

    topic_id: int
    created_at: str  # of the topic
    partition: int


class KeptEnd(NamedTuple):
    """The highest end of a log; its name is for the people who read the file."""

    offset: int
    epoch: int
    name: str


class Unreadable(Exception):
    """Why a file is not read: it is damaged, or of another database."""


class Newer(Unreadable):
    """The file is of another version of EMS, which must find it as it is."""


class KeptEnds:
    """The file of a database: what this process has found in it, and writes into it."""

    def __init__(self, using: str) -> None:
        self._using = using
        # With the alias, since databases of several servers may have one name; without the server,
        # since a backup may be restored on another one.
        self._database = f"{using}: {connections[using].settings_dict['NAME']}"
        digest = sha256(self._database.encode("utf-8", "surrogatepass")).hexdigest()
        self._asked: set[int] = set()
        self._written: dict[int, End] = {}
        self._due_at = 0.0
        self._unread_said = self._unusable_said = False
        self.path = self._place(f"{legible(using)}-{digest[:16]}.ends")
        self._found = self._read_at_first()

    def _place(self, name: str) -> Path | None:
        """Return where the file is; None if there is nothing to read or write.

        The path is absolute, since a handler may change the working directory of the process.
        """
        if in_test_process():  # fixtures put the same rows back, with lower ends
            return None
        directory = Path(settings().STATE_DIR)
        try:
            with usable(directory):  # the working directory may have been deleted
                return directory.absolute() / name
        except StateUnusable as error:
            self._say_unusable(error)
            return None

    def recall(self, partition_ids: Collection[int]) -> None:
        """Remember what the file says of partitions, when this process first looks at them.

        It may be called in a transaction: what the file says was committed before.
        """
        if not self._found or self._asked.issuperset(partition_ids):
            return
        logs = _logs(self._using)
        known = {id_: self._found[log] for id_, (log, _) in logs.items() if log in self._found}
        ends.recall({id_: End(kept.offset, kept.epoch) for id_, kept in known.items()}, self._using)
        self._asked.update(logs)

    def keep_if_due(self) -> None:
        """Write down what is new, once in EVERY_SECONDS or, if the file is large, less often."""
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + EVERY_SECONDS
            self.keep()

    def keep(self, patience: float = 0.0) -> None:
        """Write down what this process has seen, beside what others have written.

        It is left for the next time if another process writes for longer than ``patience`` seconds.
        What keeps it from being written is said once, and stops nobody.
        """
        seen = ends.seen(self._using)
        if self.path is None or seen == self._written:
            return
        logs = retrying(_logs, self._using, self._using)
        try:
            with alone_with(self.path.with_suffix(".lock"), patience) as alone:
                if alone:
                    self._merge(self.path, seen, logs)
                    self._written = seen
                    every = EVERY_SECONDS * max(1.0, len(logs) / LARGE)
                    self._due_at = time.monotonic() + min(every, AT_MOST_SECONDS)
        except Newer as error:
            self._due_at = time.monotonic() + UNUSABLE_SECONDS
            self._say_unread(error)
        except StateUnusable as error:
            self._due_at = time.monotonic() + UNUSABLE_SECONDS
            self._say_unusable(error)

    def _merge(
        self, path: Path, seen: Mapping[int, End], logs: Mapping[int, tuple[LogId, str]]
    ) -> None:
        try:
            before = self._load(path)
        except Newer:
            raise
        except Unreadable as error:
            self._say_unread(error)
            with usable(path):
                path.replace(path.with_suffix(".damaged"))
            before = {}
        there = {log for log, _name in logs.values()}
        absent = [log for log in before if log not in there][-ABSENT_AT_MOST:]
        merged = {log: before[log] for log in absent}
        for id_, (log, name) in logs.items():
            known = [before[log]] if log in before else []
            if id_ in seen:
                known.append(KeptEnd(*seen[id_], name))
            if known:
                merged[log] = max(known)
        rows = [{**log._asdict(), **kept._asdict()} for log, kept in merged.items()]
        content = {"version": VERSION, "database": self._database, "logs": rows}
        replace(path, json.dumps({**content, "sha256": _digest(rows)}))

    def _load(self, path: Path) -> dict[LogId, KeptEnd]:
        """Return what the file says; raises StateUnusable, Unreadable."""
        with usable(path):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                return {}
        try:
            content = json.loads(text)
            if (version := int(content["version"])) > VERSION:
                raise Newer(f"it has the version {version}")
            if content["database"] != self._database:
                raise Unreadable(f"it belongs to {content['database']}")
            if content["sha256"] != _digest(content["logs"]):
                raise Unreadable("its checksum differs")
            return {
                LogId(*(row[key] for key in LogId._fields)): KeptEnd(
                    *(row[key] for key in KeptEnd._fields)
                )
                for row in content["logs"]
            }
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error

    def _read_at_first(self) -> dict[LogId, KeptEnd]:
        try:
            return self._load(self.path) if self.path else {}
        except Unreadable as error:
            self._say_unread(error)
        except StateUnusable as error:
            self._say_unusable(error)
        return {}

    def _say_unread(self, error: Unreadable) -> None:
        if not self._unread_said:
            self._unread_said = True
            logger.warning(
                "%s is not read: %s. It says how far the logs had come: if a backup was restored,"
                " stop the consumers and run ems_doctor --rewound",
                *(self.path, error),
                extra=event("log.ends_unread", database=self._using),
            )

    def _say_unusable(self, error: StateUnusable) -> None:
        if not self._unusable_said:
            self._unusable_said = True
            logger.warning(
                "%s A process that starts after a restore does not know how far the logs had come:"
                " run ems_doctor --rewound before it starts",
                error,
                extra=event("log.ends_not_kept", database=self._using),
            )


def _digest(rows: Any) -> str:
    return sha256(json.dumps(rows).encode()).hexdigest()


def _logs(using: str) -> dict[int, tuple[LogId, str]]:
    """Return all logs of the database, with their names, by the id of their partition."""
    columns = ("pk", "topic_id", "topic__created_at", "number", "topic__name")
    rows = Partition.objects.using(using).values_list(*columns)
    return {
        id_: (LogId(topic_id, created_at.isoformat(), number), f"{name}/{number}")
        for id_, topic_id, created_at, number, name in rows
    }


# By alias.
_kept: Forgettable[str, KeptEnds] = Forgettable(survives_forks=True)


def of(using: str) -> KeptEnds:
    """Return the file of a database, which is read when it is first asked for."""
    found = _kept.get(using)
    if found is None:
        found = _kept[using] = KeptEnds(using)
    return found
