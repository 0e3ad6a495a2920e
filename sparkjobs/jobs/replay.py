"""Send archived messages again: all of some days of a topic, each once.

The messages are collected in a staging table and compared with the manifest. Then transactions of a
bounded size take them from there into the inbox of the target topic: what is left in the table is
not sent yet. The ledger records that the replay has begun, and that it is done. A run after a
killed one goes on where that was. Body, body type, key, tag and headers do not change; offsets, ids
and times are new, and the producer says where each message was: ``replay@flights/0@17``.
"""

from __future__ import annotations

import hashlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession

from sparkjobs.archive.manifest import DayPart, Fingerprint, fingerprints, in_archive, recorded
from sparkjobs.archive.staging import forget, send, stage
from sparkjobs.config import Config
from sparkjobs.database import (
    Connection,
    connected,
    execute,
    fetch,
    transaction,
)
from sparkjobs.errors import ArchiveDiffers, BadOption
from sparkjobs.ledger import take
from sparkjobs.lock import alone
from sparkjobs.placement import Placement
from sparkjobs.session import session
from sparkjobs.source.splits import logs, offset_at

# The batches of a replay in the ledger.
BEGUN, DONE = -1, 0
# Characters of a name in the ledger.
MAX_ENTRY = 190


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", help="whose messages")
    parser.add_argument("since", type=date.fromisoformat, help="the first day, in UTC")
    parser.add_argument("until", type=date.fromisoformat, help="the last day")
    parser.add_argument("--to", help="the topic to send them to, else the same")
    parser.add_argument("--name", help="of the replay, to do the same once more on purpose")


def run(config: Config, options: Namespace) -> int:
    plan = ReplayPlan.of(
        config, options.topic, options.since, options.until, options.to, options.name
    )
    plan.check()  # before Spark starts
    print(plan.carry_out(partial(session, "replay")))
    return 0


def replay(
    spark: SparkSession,
    config: Config,
    topic: str,
    since: date,
    until: date,
    target: str,
    name: str | None = None,
) -> str:
    """Send the messages of these days, both included, to ``target``; return a line that says so.

    It may be killed and run again. Raises Busy, BadOption, ArchiveDiffers.
    """
    return ReplayPlan.of(config, topic, since, until, target, name).carry_out(lambda: spark)


@dataclass(frozen=True)
class ReplayPlan:
    """One replay. ``entry`` is its name in the ledger, ``mark`` that of its messages.

    ``name`` says all that a replay is: what it was called, its topic, its days and its target.
    """

    config: Config
    topic: str
    since: date
    until: date
    target: str
    name: str

    @classmethod
    def of(
        cls,
        config: Config,
        topic: str,
        since: date,
        until: date,
        target: str | None,
        name: str | None,
    ) -> ReplayPlan:
        target = target or topic
        called = f"{name} " if name else ""
        text = f"replay {called}{topic} {since} {until} to {target}"
        return cls(config, topic, since, until, target, text)

    @property
    def entry(self) -> str:
        # The ledger serves all namespaces. No two replays have one entry: the second would send
        # nothing, or what is left of the first.
        entry = self.config.prefix + self.name
        if len(entry) <= MAX_ENTRY:
            return entry
        digest = hashlib.sha256(entry.encode()).hexdigest()
        return f"{entry[: MAX_ENTRY - len(digest) - 1]} {digest}"

    @property
    def mark(self) -> str:
        return hashlib.sha256(self.entry.encode()).hexdigest()[:32]

    def check(self) -> None:
        """Raise BadOption if there is nothing to send, or no topic to send it to."""
        with connected(self.config) as connection:
            if _state(connection, self.entry) is not None:
                return
            partitions = _partitions(connection, self.target)
            Placement(self.target, len(partitions), self.config.partitioner).partitioner()
            _check_archived(connection, self.topic, self.since, self.until)
            if not self._parts(connection):
                raise BadOption(
                    f"nothing of {self.topic} from {self.since} to {self.until} is in the archive"
                )

    def carry_out(self, start: Callable[[], SparkSession]) -> str:
        """Send what is not sent yet; ``start`` returns a session, if one is needed."""
        with alone(self.config, self.mark):
            with connected(self.config) as connection:
                state = _state(connection, self.entry)
            if state == DONE:
                return f"{self.name}: was done before"
            if state is None:
                self._stage(start())
            with connected(self.config) as connection:
                target = _topic(connection, self.target)
                sent = 0
                while piece := send(connection, self.mark, self.topic, target):
                    sent += piece
                with transaction(connection):
                    take(connection, self.entry, DONE)
                    _close(connection, self.entry)
        rest = "" if state is None else ", the rest of a replay that had begun"
        return f"{self.name}: {sent:,} messages sent{rest}"

    def _stage(self, spark: SparkSession) -> None:
        """Collect all messages in the staging table, and record that the replay has begun."""
        self.check()
        with connected(self.config) as connection:
            partitions = _partitions(connection, self.target)
            parts = self._parts(connection)
            forget(connection, self.mark)
        placement = Placement(self.target, len(partitions), self.config.partitioner)
        days = sorted({part.day for part in parts})
        for day in days:
            of_day = {
                (self.topic, part.partition_id): found
                for part, found in parts.items()
                if part.day == day and found.messages
            }
            if fingerprints(in_archive(spark, self.config, [self.topic], [day])) != of_day:
                raise ArchiveDiffers(f"the files of {self.topic} {day} are not what was archived")
        messages = in_archive(spark, self.config, [self.topic], days)
        expected = sum(found.messages for found in parts.values())
        if (staged := stage(messages, self.config, self.mark, placement)) != expected:
            raise ArchiveDiffers(f"{expected:,} messages were archived, {staged:,} are there")
        with connected(self.config) as connection:
            take(connection, self.entry, BEGUN)

    def _parts(self, connection: Connection) -> dict[DayPart, Fingerprint]:
        return recorded(connection, self.config, self.topic, self.since, self.until)


def _state(connection: Connection, entry: str) -> int | None:
    """Return BEGUN, DONE, or None for a replay that has sent nothing."""
    statement = "SELECT MAX(`batch`) FROM `ems_monitoring_ledger` WHERE `name` = %s"
    return fetch(connection, statement, [entry])[0][0]  # type: ignore[no-any-return]


def _close(connection: Connection, entry: str) -> None:
    statement = "DELETE FROM `ems_monitoring_ledger` WHERE `name` = %s AND `batch` = %s"
    execute(connection, statement, [entry, BEGUN])


def _topic(connection: Connection, target: str) -> int:
    """Return the id of the target topic; raises BadOption if it may not be written to."""
    _partitions(connection, target)
    ((id_,),) = fetch(connection, "SELECT `id` FROM `ems_topic` t WHERE `name` = %s", [target])
    return int(id_)


def _partitions(connection: Connection, target: str) -> list[int]:
    """Return the ids of the target's partitions, in order of their numbers; raises BadOption."""
    rows = fetch(
        connection,
        "SELECT p.`id` FROM `ems_partition` p JOIN `ems_topic` t ON t.`id` = p.`topic_id`"
        " WHERE t.`name` = %s AND t.`access` IN ('read-write', 'write-only') ORDER BY p.`number`",
        [target],
    )
    if not rows:
        raise BadOption(f"there is no topic {target!r} that may be written to")
    return [row[0] for row in rows]


def _check_archived(connection: Connection, topic: str, since: date, until: date) -> None:
    """Check that all messages of these days are in the archive; raises BadOption."""
    midnight = datetime.fromisoformat(f"{until}T00:00:00+00:00") + timedelta(days=1)
    names = fetch(connection, "SELECT `id` FROM `ems_topic` t WHERE `name` = %s", [topic])
    for log in logs(connection, topic) if names else []:
        statement = "SELECT `archived_offset` FROM `ems_partition` WHERE `id` = %s"
        ((archived,),) = fetch(connection, statement, [log.id])
        start = datetime.fromisoformat(f"{since}T00:00:00+00:00")
        first = max(log.first, offset_at(connection, log, start))
        end = offset_at(connection, log, midnight)
        if first < end and archived < end:
            raise BadOption(f"{topic}/{log.number} is archived to offset {archived}, not to {end}")
