"""Says when a stream has enough for a batch, and shares its limits out among the partitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from sparkjobs.database import Connection, fetch

# Offsets whose sizes the server adds up in one statement, or sends one by one.
STEP = 10_000

Rows = dict[str, int]


class Patience:
    """The wait until ``rows`` messages are there, at most ``delay`` since the newest batch.

    The first batch does not wait: it may be one that a process that has ended was waiting for.
    ``clock`` is in seconds.
    """

    def __init__(
        self, rows: int | None, delay: timedelta, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows = rows or 0
        self._delay = delay.total_seconds()
        self._clock = clock
        self._newest = float("-inf")

    def is_worth(self, rows: int) -> bool:
        """Tell whether so many messages that wait are worth a batch, and note that it is done."""
        if rows < self._rows and self._clock() - self._newest < self._delay:
            return False
        if rows:
            self._newest = self._clock()
        return True


def shared(waiting: Rows, rows: int, served: int = 0) -> Rows:
    """Share ``rows`` out, so that a long partition does not keep the others waiting.

    Beginning with the shortest, each partition gets an equal share of what is left. If there are
    fewer rows than partitions, so many get one row: those with the next ids after ``served``, and
    then from the lowest on. Returns how many rows each gets.
    """
    if rows < len(waiting):
        ids = sorted(waiting, key=lambda id_: (int(id_) <= served, int(id_)))
        return dict.fromkeys(ids[:rows], 1)
    taken: Rows = {}
    for id_ in sorted(waiting, key=lambda id_: (waiting[id_], id_)):
        share = -(-rows // (len(waiting) - len(taken)))
        taken[id_] = min(waiting[id_], share)
        rows -= taken[id_]
    return taken


def within_bytes(connection: Connection, start: dict[str, int], waiting: Rows, most: int) -> Rows:
    """Share ``most`` bytes of bodies and headers out in the same way.

    Each partition gets one message at least: one that is larger than its share must not wait for
    ever while others have messages. Returns how many rows each gets.
    """
    taken: Rows = {}
    for id_ in sorted(waiting, key=lambda id_: (waiting[id_], id_)):
        share = max(0, most) // (len(waiting) - len(taken))
        first = start.get(id_, 0)
        end, size = _fitting(connection, int(id_), first, first + waiting[id_], share)
        taken[id_] = end - first
        most -= size
    return taken


def _fitting(
    connection: Connection, partition_id: int, first: int, end: int, most: int
) -> tuple[int, int]:
    """Return up to which offset of ``first`` … ``end`` - 1 there are ``most`` bytes, and how many.

    The index ems_msg_log finds the rows of a step. Missing offsets count nothing.
    """
    size = 0
    offset = first
    of_step = " FROM `ems_msg` WHERE `partition_id` = %s AND `offset` >= %s AND `offset` < %s"
    weight = "`size` + COALESCE(LENGTH(`headers`), 0)"
    while offset < end:
        step = min(end, offset + STEP)
        place = [partition_id, offset, step]
        ((whole,),) = fetch(connection, f"SELECT COALESCE(SUM({weight}), 0){of_step}", place)
        if size + whole <= most:
            size += int(whole)
            offset = step
            continue
        rows = fetch(connection, f"SELECT `offset`, {weight}{of_step} ORDER BY `offset`", place)
        for at, bytes_ in rows:
            if size + bytes_ > most and at > first:
                return at, size
            size += bytes_
            offset = at + 1
        return step, size
    return offset, size
