"""Computes how far behind each group is, by a few short statements that use indexes.

These are the definitions of streams/log/lag.py, which needs Django; a test compares the two.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkjobs.database import Connection, fetch
from sparkjobs.instants import instant, now

# In places: one statement reads the times of at most this many.
CHUNK = 200
REPLAY = "replay"


@dataclass
class Lag:
    """Holds the lag of one group now, in messages. What is unknown is None, never 0."""

    group_id: int
    behind: int | None = None  # not claimed, or given back; None: the group has no cursor
    open: int = 0  # claimed and not settled
    waiting: int = 0  # to be retried
    dead: int = 0  # dead letters not redriven
    age_seconds: float | None = None
    oldest: dict[int, int] = field(default_factory=dict)  # by partition: the first unfinished

    @property
    def total(self) -> int:
        return (self.behind or 0) + self.open + self.waiting

    @property
    def figures(self) -> dict[str, Any]:
        names = ("group_id", "behind", "open", "waiting", "dead", "age_seconds")
        return {name: getattr(self, name) for name in names}

    def note(self, partition_id: int, offset: int) -> None:
        self.oldest[partition_id] = min(offset, self.oldest.get(partition_id, offset))


def lags(connection: Connection) -> list[Lag]:
    """Return the lag of every cluster group; in a broadcast group each client has its own."""
    groups = fetch(
        connection, "SELECT `id` FROM `ems_group` g WHERE `mode` = 'cluster' ORDER BY `id`"
    )
    found = {id_: Lag(id_) for (id_,) in groups}
    # Offsets that have been purged (of redriven dead letters) have no age, and must not hide that
    # of the others. In the order of the whole index ems_retry_place: MySQL would sort all else.
    for group_id, partition_id, offset, end, retry in fetch(
        connection,
        "SELECT c.`group_id`, c.`partition_id`, c.`next_offset`, p.`next_offset`,"
        " (SELECT r.`offset` FROM `ems_retry_msg` r WHERE r.`group_id` = c.`group_id`"
        " AND r.`partition_id` = c.`partition_id` AND r.`offset` >= p.`first_offset`"
        " ORDER BY r.`group_id`, r.`partition_id`, r.`offset` LIMIT 1)"
        " FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
        " WHERE c.`replay` = 0",
    ):
        if lag := found.get(group_id):
            lag.behind = (lag.behind or 0) + end - offset
            lag.note(partition_id, offset if retry is None else min(offset, retry))
    for group_id, partition_id, kind, held, count, offset in fetch(
        connection,
        "SELECT l.`group_id`, l.`partition_id`, l.`kind`, l.`token` <> '' AS `held`,"
        " SUM(l.`last_offset` + 1 - l.`progress`),"
        " MIN(CASE WHEN l.`progress` >= p.`first_offset` THEN l.`progress` END)"
        " FROM `ems_topic_group_log` l JOIN `ems_partition` p ON p.`id` = l.`partition_id`"
        " WHERE l.`state` = 'START' GROUP BY l.`group_id`, l.`partition_id`, l.`kind`, `held`",
    ):
        if lag := found.get(group_id):
            if held:
                lag.open += int(count)
            elif kind != REPLAY:  # given back: the next claim takes it
                lag.behind = (lag.behind or 0) + int(count)
            if kind != REPLAY and offset is not None:  # a replay is old on purpose
                lag.note(partition_id, offset)
    for group_id, count in fetch(
        connection,
        "SELECT `group_id`, COUNT(*) FROM `ems_retry_msg` WHERE `delivery_id` IS NULL"
        " GROUP BY `group_id`",
    ):
        if lag := found.get(group_id):
            lag.waiting = int(count)
    for group_id, count in fetch(
        connection,
        "SELECT `group_id`, COUNT(*) FROM `ems_dead_msg` WHERE `redriven_at` IS NULL"
        " GROUP BY `group_id`",
    ):
        if lag := found.get(group_id):
            lag.dead = int(count)
    _ages(connection, found)
    return list(found.values())


def _ages(connection: Connection, found: dict[int, Lag]) -> None:
    """Set how long the oldest unfinished message of each group has been in the log."""
    moment = now(connection)
    places = sorted({place for lag in found.values() for place in lag.oldest.items()})
    sequenced: dict[tuple[int, int], datetime] = {}
    for start in range(0, len(places), CHUNK):
        part = places[start : start + CHUNK]
        chosen = " OR ".join(["(`partition_id` = %s AND `offset` = %s)"] * len(part))
        rows = fetch(
            connection,
            f"SELECT `partition_id`, `offset`, `sequenced_at` FROM `ems_msg` WHERE {chosen}",  # noqa: S608
            [number for place in part for number in place],
        )
        for partition_id, offset, at in rows:
            if read := instant(at):
                sequenced[partition_id, offset] = read
    oldest: dict[int, list[float]] = defaultdict(list)
    for lag in found.values():
        for place in lag.oldest.items():
            if place in sequenced:  # the end of the log and purged messages have no age
                oldest[lag.group_id].append((moment - sequenced[place]).total_seconds())
    for group_id, ages in oldest.items():
        found[group_id].age_seconds = max(0.0, *ages)
