"""Looks what a consumer process has to do now, and when the next thing is due.

One statement is enough for any number of groups, so that an idle process costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import connections

from streams.database.retrying import retrying
from streams.database.sql import claim as sql
from streams.database.sql import sequence as sequence_sql
from streams.database.sql.dialect import fetch
from streams.log.ends import End


@dataclass(frozen=True)
class Due:
    """What one look has found."""

    inbox: frozenset[int] = frozenset()  # partitions with messages that are due
    groups: frozenset[int] = frozenset()  # groups with something to claim
    # The ends of the partitions: topic id → partition id → next offset.
    ends: dict[int, dict[int, int]] = field(default_factory=dict)
    # Seconds until the next message, retry or blocked cursor is due; None if nothing waits.
    next_in: float | None = None
    logs: dict[int, End] = field(default_factory=dict)  # the same ends, by partition


@dataclass(frozen=True)
class Places:
    """Where a process looks: its groups, and all partitions as (topic id, partition id)."""

    groups: Sequence[int]
    partitions: Sequence[tuple[int, int]]


def partitions(using: str) -> list[tuple[int, int]]:
    """Return all partitions, as (topic id, partition id).

    A consumer process also sequences messages that only groups of other processes read.
    """
    rows = retrying(fetch, using, using, sequence_sql.PARTITIONS)
    return [(topic_id, id_) for id_, topic_id in rows]


def what_is_due(places: Places, using: str) -> Due:
    """Look once at all ``places``, without waiting for a lock and without taking one."""
    if not places.partitions:
        return Due()
    topics = {id_: topic_id for topic_id, id_ in places.partitions}
    statement = sql.due(connections[using].vendor, topics, places.groups)
    inbox, groups = set(), set()
    ends: dict[int, dict[int, int]] = {}
    logs: dict[int, End] = {}
    waits: list[float] = []
    for kind, id_, value, epoch in retrying(fetch, using, using, statement):
        if kind == sql.END:
            ends.setdefault(topics[id_], {})[id_] = int(value)
            logs[id_] = End(int(value), int(epoch))
        elif value > 0:  # microseconds from now
            waits.append(int(value) / 1e6)
        elif kind == sql.INBOX:
            inbox.add(id_)
        else:
            groups.add(id_)
    return Due(frozenset(inbox), frozenset(groups), ends, min(waits, default=None), logs)
