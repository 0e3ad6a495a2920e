"""Finds what deliveries have neither done nor failed: what waits for its key or rate, or longer.

A delivery of several offsets says neither which of them these were, nor how many. But each comes
again with its attempt unspent: it is a retry now, or a later delivery has had this retry. In an
ordered group the last one may have blocked the cursor instead: it is the next claim, or was one.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime

from sparkjobs.database import Connection, fetch, vendor_of
from sparkjobs.instants import stored

# The columns of waiting().
WAITS = "id long, waits array<long>"

# Where nearly all retries are of one group, the servers would read all of it by ems_retry_due.
BY_PLACE = {"mysql": "FORCE INDEX (ems_retry_place)", "sqlite": ""}

PLACE = "`group_id` = %s AND `partition_id` = %s"

# By offset and attempt: the newest delivery that is a retry. One that waits is newer than all.
Again = dict[tuple[int, int], int]


def waiting(
    connection: Connection, ids: tuple[int, int], since: datetime, until: datetime
) -> list[tuple[int, list[int]]]:
    """Return the deliveries among the ids first … end - 1 that ended in this time (WAITS).

    Those are left out that have passed nothing so, and those of one offset: their state says it.
    """
    deliveries = fetch(
        connection,
        "SELECT `id`, `group_id`, `partition_id`, `first_offset`, `progress`, `attempt`, `errors`,"
        " `last_offset` FROM `ems_topic_group_log` WHERE `id` >= %s AND `id` < %s"
        " AND `state` = 'RETRY' AND `first_offset` < `last_offset` AND `first_offset` < `progress`"
        " AND `finished_at` >= %s AND `finished_at` < %s",
        [*ids, stored(since), stored(until)],
    )
    if not deliveries:
        return []
    places: dict[tuple[int, int], list[tuple[int, range, int, str | None, int]]] = {}
    for id_, group, partition, first, end, attempt, errors, last in deliveries:
        one = id_, range(first, end), attempt, errors, last
        places.setdefault((group, partition), []).append(one)
    groups = fetch(connection, "SELECT g.`id` FROM `ems_group` g WHERE g.`ordered`")
    ordered = {id_ for (id_,) in groups}
    found = []
    for place, of_place in places.items():
        first = min(offsets.start for _id, offsets, *_rest in of_place)
        end = max(offsets.stop for _id, offsets, *_rest in of_place)
        again = _again(connection, place, first, end)
        blocks = _blocks(connection, place, first, end) if place[0] in ordered else {}
        for id_, offsets, attempt, errors, last in of_place:
            failed = {at for some in json.loads(errors or "{}").values() for at in some}
            newest = {at: again.get((at, attempt), 0) for at in offsets if at not in failed}
            if last in newest:
                newest[last] = max(newest[last], blocks.get((last, attempt), 0))
            if waits := [at for at, newer in newest.items() if newer > id_]:
                found.append((id_, waits))
    return found


def _again(connection: Connection, place: tuple[int, int], first: int, end: int) -> Again:
    """Return the retries of the offsets first … end - 1: by ems_log_place and ems_retry_place."""
    # In this order: what ends in between was there at the first look.
    waiting = fetch(
        connection,
        f"SELECT `offset`, `attempt` FROM `ems_retry_msg` {BY_PLACE[vendor_of(connection)]}"  # noqa: S608
        f" WHERE {PLACE} AND `offset` >= %s AND `offset` < %s",
        [*place, first, end],
    )
    claimed = _claimed(connection, place, first, end, "retry")
    return claimed | dict.fromkeys(waiting, sys.maxsize)


def _blocks(connection: Connection, place: tuple[int, int], first: int, end: int) -> Again:
    """Return where claims of new messages begin, and where the cursor of the place is."""
    # In this order: what is claimed in between was there at the first look.
    cursors = f"SELECT `next_offset`, `attempt` FROM `ems_cursor` WHERE {PLACE}"  # noqa: S608
    at = fetch(connection, cursors, place)
    claimed = _claimed(connection, place, first, end, "new")
    return claimed | dict.fromkeys(at, sys.maxsize)


def _claimed(
    connection: Connection, place: tuple[int, int], first: int, end: int, kind: str
) -> Again:
    """Return the newest delivery of this kind that begins at each offset, by ems_log_place."""
    claimed = fetch(
        connection,
        f"SELECT `first_offset`, `attempt`, MAX(`id`) FROM `ems_topic_group_log` WHERE {PLACE}"  # noqa: S608
        " AND `first_offset` >= %s AND `first_offset` < %s AND `kind` = %s"
        " GROUP BY `first_offset`, `attempt`",
        [*place, first, end, kind],
    )
    return {(offset, attempt): id_ for offset, attempt, id_ in claimed}
