"""Computes how far behind each group is, by a few short statements that use indexes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkjobs.database import Connection, fetch
from sparkjobs.instants import instant, now

# In places: one statement reads the times of at most this many.
CHUNK = 200


@dataclass
class Lag:
    """Holds the lag of one group now, in messages. What is unknown is None, never 0."""

    group_id: int
    behind: int | None = None  # in the log and not claimed; None: the group has no cursor
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
    for group_id, partition_id, offset, end in fetch(
        connection,
        "SELECT c.`group_id`, c.`partition_id`, c.`next_offset`, p.`next_offset`"
        " FROM `ems_cursor` c JOIN `ems_partition` p ON p.`id` = c.`partition_id`"
        " WHERE c.`replay` = 0",
    ):
        if lag := found.get(group_id):
            lag.behind = (lag.behind or 0) + max(0, end - offset)
            lag.note(partition_id, offset)
    for group_id, partition_id, count, offset in fetch(
        connection,
        "SELECT `group_id`, `partition_id`, SUM(`last_offset` + 1 - `progress`), MIN(`progress`)"
        " FROM `ems_topic_group_log` WHERE `state` = 'START' GROUP BY `group_id`, `partition_id`",
    ):
        if lag := found.get(group_id):
            lag.open += int(count)
            lag.note(partition_id, offset)
    for group_id, partition_id, count, offset in fetch(
        connection,
        "SELECT `group_id`, `partition_id`, SUM(`delivery_id` IS NULL), MIN(`offset`)"
        " FROM `ems_retry_msg` GROUP BY `group_id`, `partition_id`",
    ):
        if lag := found.get(group_id):
            lag.waiting += int(count)
            lag.note(partition_id, offset)
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
