"""Reads from the tables what the metrics show: at most thirteen statements, each of them bounded.

The counts of prepared messages are bounded by what there is of other namespaces, too.

Beyond 100 groups, 200 places that are behind or 200 busy partitions there is one more for each as
many.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections

from streams.conf import name_prefix
from streams.database.sql import metrics as sql
from streams.database.sql import prepared
from streams.database.sql.dialect import fetch
from streams.models import Mode
from streams.models.namespaces import own_range
from streams.models.prepared import UNFINISHED
from streams.observe.diagnoses import OK
from streams.observe.mysql_server import Server
from streams.observe.replication import Replication

Labels = tuple[str, ...]
# The name of a metric, the values of its labels, and its value.
Sample = tuple[str, Labels, float]
Place = tuple[int, int]  # group or partition, partition or offset


@dataclass
class _Group:
    """The figures of one group."""

    topic: str
    name: str
    paused: bool
    broadcast: bool
    behind: int = 0
    open: int = 0
    oldest: float = 0.0


@dataclass(frozen=True)
class _Partition:
    topic: str
    access: str
    number: int
    first: int
    end: int


class MetricReading:
    """A reading of the tables behind one alias, on the connection of this thread."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._connection: Any = connections[using]
        self._vendor = self._connection.vendor
        self._prefix = name_prefix()
        self._own = own_range()

    def samples(self) -> Iterator[Sample]:
        """Yield all samples; raises a DatabaseError if the tables cannot be read."""
        started = time.monotonic()
        partitions = {
            id_: _Partition(self._name(topic), access, number, first, end)
            for topic, access, id_, number, first, end in self._rows(sql.PARTITIONS, self._own)
        }
        yield from self._partitions(partitions)
        yield from self._groups(partitions)
        yield from self._inbox(partitions)
        yield from self._prepared()
        for name, age in self._rows(sql.steps(self._vendor), self._own):
            yield "ems_step_age_seconds", (self._name(name),), max(0.0, float(age))
        yield from self._server()
        yield "ems_up", (), 1
        yield "ems_scrape_seconds", (), time.monotonic() - started

    def _rows(self, statement: str, parameters: Iterable[Any] = ()) -> list[Any]:
        mariadb = bool(getattr(self._connection, "mysql_is_mariadb", False))
        limited = sql.limited(statement, vendor=self._vendor, is_mariadb=mariadb)
        return fetch(self._using, limited, parameters)

    def _all(self, statements: Iterable[str]) -> Iterator[Any]:
        for statement in statements:
            yield from self._rows(statement)

    def _name(self, stored: str) -> str:
        return stored.removeprefix(self._prefix)

    def _partitions(self, partitions: dict[int, _Partition]) -> Iterator[Sample]:
        for one in partitions.values():
            place = one.topic, str(one.number)
            yield "ems_sequenced_messages_total", place, one.end
            yield "ems_log_messages", place, one.end - one.first
        for topic, access in {(one.topic, one.access) for one in partitions.values()}:
            yield "ems_topic_info", (topic, access), 1

    def _groups(self, partitions: dict[int, _Partition]) -> Iterator[Sample]:
        groups = {
            id_: _Group(self._name(topic), self._name(name), bool(paused), mode == Mode.BROADCAST)
            for id_, topic, name, paused, mode in self._rows(sql.GROUPS, self._own)
        }
        oldest: dict[Place, int] = {}
        for what, id_, partition_id, replay, offset, count in self._rows(
            sql.positions(self._vendor)
        ):
            group, partition = groups.get(id_), partitions.get(partition_id)
            if group is None or partition is None:
                continue
            if what == sql.CURSOR:
                # The end was read before: the cursor may have passed it since.
                group.behind += max(0, partition.end - offset)
                at = group.topic, group.name, str(partition.number)
                yield "ems_claimed_messages_total", at, offset
            elif what == sql.HELD:
                group.open += int(count)
            elif what == sql.GIVEN_BACK and not replay:
                group.behind += int(count)
            # Replays are old on purpose; offsets that have been purged have no age.
            if not replay and offset is not None and partition.first <= offset < partition.end:
                known = oldest.get((id_, partition_id), offset)
                oldest[id_, partition_id] = min(known, offset)
        self._note_ages(groups, oldest)
        counted = {
            (what, id_): count for what, id_, count in self._all(sql.counts(self._vendor, groups))
        }
        for id_, group in groups.items():
            place = group.topic, group.name
            yield "ems_group_paused", place, group.paused
            yield "ems_group_consumers", place, counted.get((sql.CONSUMERS, id_), 0)
            if group.broadcast:  # its clients have their positions on their own disks
                continue
            yield "ems_group_lag_messages", place, group.behind
            yield "ems_group_open_messages", place, group.open
            yield "ems_group_retries", place, counted.get((sql.RETRIES, id_), 0)
            yield "ems_group_dead_letters", place, counted.get((sql.LETTERS, id_), 0)
            yield "ems_group_oldest_message_seconds", place, group.oldest

    def _note_ages(self, groups: dict[int, _Group], oldest: dict[Place, int]) -> None:
        places = {(partition, offset) for (_group, partition), offset in oldest.items()}
        ages = {
            (partition, offset): float(age)
            for partition, offset, age in self._all(sql.ages(self._vendor, sorted(places)))
        }
        for (id_, partition), offset in oldest.items():
            age = ages.get((partition, offset), 0.0)
            groups[id_].oldest = max(groups[id_].oldest, age)

    def _inbox(self, partitions: dict[int, _Partition]) -> Iterator[Sample]:
        topics = {one.topic for one in partitions.values()}
        due, oldest = dict.fromkeys(topics, 0), dict.fromkeys(topics, 0.0)
        following: dict[str, float] = {}
        heads = self._rows(sql.inbox_heads(self._vendor, list(partitions))) if partitions else []
        for what, id_, seconds in heads:
            topic, from_now = partitions[id_].topic, float(seconds)
            if what == sql.DELAYED:
                following[topic] = min(from_now, following.get(topic, from_now))
            elif what == sql.COME_DUE:
                oldest[topic] = max(oldest[topic], -from_now)
        busy = sorted({id_ for what, id_, _seconds in heads if what != sql.DELAYED})
        for id_, count, age in self._all(sql.inbox_counts(self._vendor, busy)):
            topic = partitions[id_].topic
            due[topic] = min(due[topic] + count, sql.INBOX_AT_MOST)
            oldest[topic] = max(oldest[topic], float(age or 0))
        for topic in topics:
            yield "ems_inbox_messages", (topic,), due[topic]
            yield "ems_inbox_oldest_seconds", (topic,), oldest[topic]
        for topic, seconds in following.items():
            yield "ems_next_delayed_seconds", (topic,), seconds

    def _prepared(self) -> Iterator[Sample]:
        statement = prepared.counts(self._vendor, UNFINISHED)
        for state, count, age in self._rows(statement, [*self._own] * len(UNFINISHED)):
            yield "ems_prepared_messages", (state,), count
            yield "ems_prepared_oldest_seconds", (state,), max(0.0, float(age or 0))

    def _server(self) -> Iterator[Sample]:
        if self._vendor != "mysql":
            yield "ems_server_info", (self._vendor, ""), 1
            return
        server = Server(self._using)
        vendor = "mariadb" if server.is_mariadb else "mysql"
        yield "ems_server_info", (vendor, server.name), 1
        yield "ems_replication_ok", (), Replication(server).diagnosis().level == OK
        try:
            ((age, length),) = self._rows(sql.TRANSACTIONS)
        except DatabaseError:  # without the privilege PROCESS
            return
        yield "ems_oldest_transaction_seconds", (), max(0, age or 0)
        if length is not None:
            yield "ems_history_list_length", (), length
