"""Finds the deliveries of a time by their ids, since no index has the times at which they ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from sparkjobs.database import Connection, fetch
from sparkjobs.instants import stored

# A delivery that was open for longer than this is *long*: remembered.py has each of them.
LONG = timedelta(hours=1)
# Ids rise with the times of the claims, but for claims that are nearer to each other than this.
DISORDER = timedelta(minutes=5)
# Transactions that write a letter, or end a delivery, may commit this much later than they say.
LATE = timedelta(minutes=1)


def ids_between(connection: Connection, since: datetime, until: datetime) -> tuple[int, int]:
    """Return the first id, and the one after the last, of what ended from ``since`` to ``until``.

    All deliveries that ended in this time are among these ids, but for long ones. Whatever the
    table holds before and after is not read.
    """
    first = _first_claimed(connection, since - LONG - DISORDER)
    return first, _first_claimed(connection, until + DISORDER)


def claimed_since(connection: Connection, since: datetime | None) -> int:
    """Return about how many deliveries were claimed since then; None: ever."""
    ((low, end),) = fetch(connection, "SELECT MIN(`id`), MAX(`id`) + 1 FROM `ems_topic_group_log`")
    first = _first_claimed(connection, since - DISORDER) if since else low
    return int((end or 0) - (first or 0))


def messages_between(connection: Connection, since: datetime, until: datetime) -> int:
    """Return how many messages the deliveries had that ended in this time, but for long ones."""
    ((messages,),) = fetch(
        connection,
        "SELECT COALESCE(SUM(`progress` - `first_offset`), 0) FROM `ems_topic_group_log`"
        " WHERE `id` >= %s AND `id` < %s AND `finished_at` >= %s AND `finished_at` < %s",
        [*ids_between(connection, since, until), stored(since), stored(until)],
    )
    return int(messages)


def ended_between(
    connection: Connection, ids: tuple[int, int], since: datetime, until: datetime, most: int
) -> int:
    """Return how many deliveries among the ids first … end - 1 ended in this time, up to ``most``.

    The ids say too much: they are of an hour, and a server may give out only each third one.
    """
    ((ended,),) = fetch(
        connection,
        "SELECT COUNT(*) FROM (SELECT 1 FROM `ems_topic_group_log` WHERE `id` >= %s AND `id` < %s"
        " AND `finished_at` >= %s AND `finished_at` < %s LIMIT %s) AS `ended`",
        [*ids, stored(since), stored(until), most],
    )
    return int(ended)


def _first_claimed(connection: Connection, moment: datetime) -> int:
    """Return the first id that was claimed at ``moment`` or later, or one that no row has yet.

    It is found by bisection: some thirty rows are read by the primary key.
    """
    ((low, high),) = fetch(connection, "SELECT MIN(`id`), MAX(`id`) + 1 FROM `ems_topic_group_log`")
    low, high = low or 0, high or 0
    while low < high:
        middle = (low + high) // 2
        rows = fetch(
            connection,
            "SELECT `id`, `claimed_at` >= %s FROM `ems_topic_group_log`"
            " WHERE `id` >= %s AND `id` < %s ORDER BY `id` LIMIT 1",
            [stored(moment), middle, high],
        )
        if not rows or rows[0][1]:
            high = middle
        else:
            low = rows[0][0] + 1
    return int(low)
