"""Waits until a server for reading has what a task is to read.

What a task reads is planned on the primary. A pass of the sequencer is one transaction, and the
next pass of a partition changes the same row: so where the end of a log has come to a replica, all
messages before it have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkjobs.database import Connection, fetch
from sparkjobs.errors import ReplicaBehind
from sparkjobs.source.splits import Range

# A replica is usually a second behind at most. Then an error: the primary is not read instead,
# since a replica is there to keep such reads away from it.
SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
IDS = 500  # of one statement


def wait(connection: Connection, ranges: Sequence[Range]) -> None:
    """Return when the logs are on this server as far as the ranges go; raises ReplicaBehind."""
    give_up_at = time.monotonic() + SECONDS
    pause = FIRST_PAUSE
    while behind := _behind(connection, ranges):
        if time.monotonic() > give_up_at:
            part, end = behind
            raise ReplicaBehind(
                f"{part.topic}/{part.number}: the replica has the messages before offset {end}, and"
                f" those before {part.end} are to be read: it is more than {SECONDS:.0f} s behind"
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _behind(connection: Connection, ranges: Sequence[Range]) -> tuple[Range, int] | None:
    """Return a range that is not on this server yet, and where its log ends here."""
    ids = sorted({part.partition_id for part in ranges})
    ends: dict[int, int] = {}
    for start in range(0, len(ids), IDS):
        chosen = ", ".join(map(str, ids[start : start + IDS]))
        ends |= fetch(
            connection,
            f"SELECT `id`, `next_offset` FROM `ems_partition` WHERE `id` IN ({chosen})",  # noqa: S608
        )
    for part in ranges:
        end = ends.get(part.partition_id, 0)
        if end < part.end:
            return part, end
    return None
