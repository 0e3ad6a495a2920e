"""Remembers deliveries that are open when their time is rolled up, and long ones.

A delivery that is open now may get an end in the past, when the transaction of its handler commits.
It is remembered, so that the next run counts the minute of its end again, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sparkjobs.database import Connection, delete, execute, fetch, insert, vendor_of
from sparkjobs.instants import MICROSECONDS, instant, stored
from sparkjobs.rollup.claims import LONG

ROWS_PER_STATEMENT = 500


@dataclass(frozen=True)
class Remembered:
    """What is known of a delivery: ``counted`` is the end with which it was counted."""

    id: int
    counted: datetime | None
    group_id: int | None  # None: it is not in the log any more
    claimed: datetime | None
    ended: datetime | None  # None: it is open

    @property
    def is_long(self) -> bool:
        return bool(self.claimed and self.ended and self.ended - self.claimed > LONG)

    def ended_late(self, since: datetime) -> bool:
        """Tell whether it ended before ``since``, and is not counted."""
        return self.counted is None and self.ended is not None and self.ended < since


@dataclass(frozen=True)
class Look:
    """The deliveries that are remembered, and those that are open, at one moment."""

    remembered: Sequence[Remembered]
    open: frozenset[int]

    def long_ends(self, since: datetime, until: datetime) -> list[int]:
        """Return the ids of the long deliveries that ended in this time."""
        return [
            one.id
            for one in self.remembered
            if one.is_long and one.ended and since <= one.ended < until
        ]

    def oldest_claim(self, since: datetime, until: datetime) -> datetime | None:
        """Return the first claim of those that ended in this time and are not counted."""
        return min(
            (
                one.claimed
                for one in self.remembered
                if one.counted is None and one.claimed and one.ended and since <= one.ended < until
            ),
            default=None,
        )


def look(connection: Connection, since: datetime) -> Look:
    """Look before the deliveries are read: those that end in between are then counted, now or next.

    Left out are the long ones that are counted with an end before ``since``: they only get more.
    Ranges without a token were given back, and are deleted when they are claimed.
    """
    remembered = fetch(
        connection,
        "SELECT o.`delivery_id`, o.`finished_at`, l.`group_id`, l.`claimed_at`, l.`finished_at`"
        " FROM `ems_monitoring_open` o LEFT JOIN `ems_topic_group_log` l"
        " ON l.`id` = o.`delivery_id` WHERE o.`finished_at` IS NULL OR o.`finished_at` >= %s",
        [stored(since)],
    )
    rows = fetch(
        connection,
        "SELECT `id` FROM `ems_topic_group_log` WHERE `state` = 'START' AND `token` <> ''",
    )
    return Look(
        [
            Remembered(id_, instant(counted), group_id, instant(claimed), instant(ended))
            for id_, counted, group_id, claimed, ended in remembered
        ],
        frozenset(id_ for (id_,) in rows),
    )


def long_ones(connection: Connection, ids: tuple[int, int]) -> list[tuple[int, datetime]]:
    """Return the long deliveries among the ids first … end - 1, with their ends.

    A window that began LONG ago at most needs no such look: they were open at the last run's look.
    """
    at = MICROSECONDS[vendor_of(connection)]
    rows = fetch(
        connection,
        "SELECT `id`, `finished_at` FROM `ems_topic_group_log` WHERE `id` >= %s AND `id` < %s"  # noqa: S608
        f" AND {at.format('`finished_at`')} - {at.format('`claimed_at`')} > %s",
        [*ids, LONG.total_seconds() * 1_000_000],
    )
    return [(id_, ended) for id_, at_end in rows if (ended := instant(at_end))]


def remember(
    connection: Connection,
    seen: Look,
    since: datetime,
    until: datetime,
    long: Iterable[tuple[int, datetime]] = (),
    late: Iterable[Remembered] = (),
) -> None:
    """Note, in the transaction of its figures, that the window ``since`` … ``until`` is counted.

    ``late`` are those that were counted though they ended before ``since``.
    """
    counted = [
        one
        for one in seen.remembered
        if one.counted is None and one.ended and since <= one.ended < until
    ]
    known = {one.id for one in seen.remembered}
    ends: dict[int, datetime | None] = dict.fromkeys(seen.open - known)
    for id_, ended in long:
        # One that ended before the window is counted, and not known if the look has left it out.
        if id_ not in known and ended >= since:
            ends[id_] = ended if ended < until else None
    execute(
        connection,
        "DELETE FROM `ems_monitoring_open`"
        " WHERE `delivery_id` < (SELECT MIN(`id`) FROM `ems_topic_group_log`)",
    )
    gone = [one.id for one in seen.remembered if one.group_id is None]
    for one in (*counted, *late):
        gone.append(one.id)
        if one.is_long:
            ends[one.id] = one.ended
    delete(connection, "ems_monitoring_open", gone, "delivery_id")
    rows = [(id_, stored(ends[id_])) for id_ in sorted(ends)]
    for at in range(0, len(rows), ROWS_PER_STATEMENT):
        part = rows[at : at + ROWS_PER_STATEMENT]
        insert(connection, "ems_monitoring_open", ("delivery_id", "finished_at"), part)
