"""Counts dead letters, and finds the deliveries that count those of long after they had ended.

When a group gives up on a waiting retry, the message is counted as dead in its last delivery,
however long ago that was: see streams/consume/outcome/dead_letter.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import Connection, fetch, stream, vendor_of
from sparkjobs.instants import instant, minute_of, stored

# The most offsets of a delivery, so those that cover an offset begin less than this before it.
MAX_BATCH = 1000

# The most letters whose deliveries are held at once.
PART = 20_000
# The columns of counted_letters(); ``died_at`` is the beginning of a minute.
LETTERS = "group_id long, error_class string, died_at timestamp, letters long"
DIED = {
    MYSQL: "DATE_FORMAT(`died_at`, '%%Y-%%m-%%d %%H:%%i:00')",
    SQLITE: "SUBSTR(`died_at`, 1, 16) || ':00'",
}

# A group, and a minute in which deliveries of it ended.
Minute = tuple[int, datetime]


def counted_letters(
    connection: Connection, since: datetime, until: datetime
) -> list[tuple[int, str, datetime | None, int]]:
    """Return how many letters were written in this time, by group, class and minute (LETTERS).

    Index: ems_dead_died. A letter that has died again is as old as its first death by its id, so
    ids do not tell where those of a time are.
    """
    rows = fetch(
        connection,
        f"SELECT `group_id`, `error_class`, {DIED[vendor_of(connection)]} AS `minute`, COUNT(*)"  # noqa: S608
        " FROM `ems_dead_msg` WHERE `died_at` >= %s AND `died_at` < %s"
        " GROUP BY `group_id`, `error_class`, `minute`",
        [stored(since), stored(until)],
    )
    return [
        (group_id, error_class, instant(datetime.fromisoformat(minute)), int(count))
        for group_id, error_class, minute, count in rows
    ]


def minutes_of_letters(
    connection: Connection, died_since: datetime, ended_before: datetime
) -> set[Minute]:
    """Return where letters that were written from ``died_since`` on are counted as dead.

    Left out are deliveries that ended at ``ended_before`` or later. Each delivery is read once,
    however many letters are near it, and only those near a letter are read. Indexes: ems_dead_died
    and ems_log_place.
    """
    offsets: dict[tuple[int, int], array[int]] = {}
    for rows in stream(
        connection,
        "SELECT `group_id`, `partition_id`, `offset` FROM `ems_dead_msg` WHERE `died_at` >= %s"
        " ORDER BY `group_id`, `partition_id`, `offset`",
        [stored(died_since)],
    ):
        for group_id, partition_id, offset in rows:
            offsets.setdefault((group_id, partition_id), array("q")).append(offset)
    found: set[Minute] = set()
    for (group_id, partition_id), of_place in offsets.items():
        for part in _near_each_other(of_place):
            for ended in _last_ends(connection, group_id, partition_id, part):
                if ended < ended_before:
                    found.add((group_id, minute_of(ended)))
    return found


def _near_each_other(offsets: Iterable[int]) -> Iterator[list[int]]:
    """Yield rising offsets in parts that are not too long.

    Few deliveries cover two parts: those at the end of a part that was long enough.
    """
    part: list[int] = []
    for offset in offsets:
        if part and (offset - part[-1] >= MAX_BATCH or len(part) >= PART):
            yield part
            part = []
        part.append(offset)
    if part:
        yield part


def _last_ends(
    connection: Connection, group_id: int, partition_id: int, offsets: list[int]
) -> Iterator[datetime]:
    """Yield when the last delivery of each of these rising offsets ended."""
    newest: dict[int, tuple[int, datetime]] = {}
    for rows in stream(
        connection,
        "SELECT `id`, `first_offset`, `last_offset`, `finished_at` FROM `ems_topic_group_log`"
        " WHERE `group_id` = %s AND `partition_id` = %s AND `first_offset` > %s"
        " AND `first_offset` <= %s AND `last_offset` >= %s AND `state` <> 'START'",
        [group_id, partition_id, offsets[0] - MAX_BATCH, offsets[-1], offsets[0]],
    ):
        for id_, first, last, finished in rows:
            for offset in offsets[bisect_left(offsets, first) : bisect_right(offsets, last)]:
                if finished and (offset not in newest or id_ > newest[offset][0]):
                    newest[offset] = id_, finished
    for _id, finished in newest.values():
        if ended := instant(finished):
            yield ended
