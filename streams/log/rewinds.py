"""Keeps offsets from being given twice after a log has lost its last commits.

A server that is promoted, or a backup that is restored, may lack the last commits. Then a log ends
before offsets that were given, and would give them again, to other messages. A process that
remembers a higher end (ends.py), or finds one on its disk (kept_ends.py), lets the log jump beyond
it, before any more offsets are given.
The offsets in between are left out for good: a row of Rewind says so, and cursors pass them.
docs/decisions/0010-rewound-log.md has the reasons.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from django.db import Error, OperationalError, connections
from django.db.models import Max

from streams.database.remembered import Forgettable
from streams.database.retrying import held_by_others, retrying
from streams.database.server import server
from streams.database.transactions import (
    after_commit,
    in_test_case,
    in_transaction,
    own_transaction,
)
from streams.log import ends, kept_ends
from streams.log.ends import End
from streams.log.skips import move_cursor
from streams.logs import event
from streams.models import Cursor, Message, Partition, Rewind, UtcNow
from streams.telemetry import count

logger = logging.getLogger("streams.rewinds")

REWOUND = "rewound"  # the thread of the deliveries that skip what is left out
# A log jumps by so many offsets beyond the highest known one, since a process that knew more may be
# dead: twice what the fastest sequencer that was measured gives in a second.
MARGIN = 100_000
# No log ends beyond this offset: the column has 63 bits, and each jump takes MARGIN.
HIGHEST = 2**62
# Seconds for which a jump is tried again after deadlocks; after that the next look does it.
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Hole:
    """Offsets of a partition that are left out; from ``epoch`` on they come before a log."""

    offsets: range
    epoch: int


# Alias and partition id → epoch, and the holes up to it, as they rise.
_holes: Forgettable[tuple[str, int], tuple[int, tuple[Hole, ...]]] = Forgettable()
# Alias and partition id → the end before a jump that this process has yet to tell.
_untold: Forgettable[tuple[str, int], End] = Forgettable(survives_forks=True)


def compare(found: Mapping[int, End], before: Mapping[int, End], using: str) -> None:
    """Let logs jump that end lower now than ``before``, and note what was found.

    ``before`` is what this process had seen when ``found`` was read: ``ends.seen()``. What earlier
    processes had seen of logs that are new to this one is compared at the next look.
    """
    server(using)  # from its first look on a process counts how long it has been on this server
    kept_ends.of(using).recall(found.keys())
    for partition_id, end in found.items():
        known = before.get(partition_id)
        if known is not None and end.offset < known.offset:
            _holes.pop((using, partition_id), None)
            jump_if_rewound(partition_id, using)
    note(found, using)


def note(found: Mapping[int, End], using: str) -> None:
    """Remember the ends of logs once they are committed; say so if one has jumped.

    What an open transaction has read or written is remembered when it is committed. If the database
    fails while a jump is told, the next note tells it.
    """
    if not in_test_case(using):
        after_commit(lambda: _note(found, using), using)


def _note(found: Mapping[int, End], using: str) -> None:
    for partition_id, old in ends.remember(found, using).items():
        _untold.setdefault((using, partition_id), old)
    for alias, partition_id in list(_untold):
        if alias != using or (untold := _untold.pop((alias, partition_id), None)) is None:
            continue
        try:
            _tell(partition_id, untold, using)
        except Error:
            _untold.setdefault((using, partition_id), untold)
            connections[using].close_if_unusable_or_obsolete()
            return


def is_rewound(partition_id: int, next_offset: int, using: str) -> bool:
    """Tell whether a log that ends at ``next_offset``, read under its lock, was rewound.

    If messages have higher offsets, ems_partition alone is old: that is damage, and says nothing
    of the log.
    """
    kept_ends.of(using).recall((partition_id,))
    known = ends.end(partition_id, using)
    if known is None or next_offset >= known.offset or in_test_case(using):
        return False
    return _last_offset(partition_id, using) < next_offset


def jump_if_rewound(partition_id: int, using: str) -> bool:
    """Let a log jump if it ends lower than this process knows; return False if it is locked."""
    known = ends.end(partition_id, using)
    if known is None:
        return True
    try:
        retrying(lambda: jump(partition_id, known, using), using, patience=PATIENCE_SECONDS)
    except OperationalError as error:
        if not held_by_others(error, using):
            raise
        return False
    return True


def jump(partition_id: int, known: End, using: str, *, by: str = "") -> Rewind | None:
    """Let a log that ends before ``known`` go on MARGIN offsets beyond it; None if it does not.

    It is one transaction, under the lock of the partition, so that only one process does it, and no
    offset is given meanwhile. It may be repeated. ``by`` says who has noticed it: this process by
    default. Groups at the end of the log pass what is left out now, the others when they come
    there.
    """
    with own_transaction(using):
        partitions = Partition.objects.using(using).filter(pk=partition_id)
        # The plain read of a proxy may be old: only what is read under the lock counts.
        row = partitions.select_for_update().first()
        if row is None or row.next_offset >= known.offset:
            return None
        if _last_offset(partition_id, using) >= row.next_offset:
            return None  # damaged: the doctor has the statement that repairs it
        rewind = Rewind(
            partition_id=partition_id,
            epoch=max(row.epoch, known.epoch) + 1,
            first_offset=row.next_offset,
            known_offset=known.offset,
            next_offset=known.offset + MARGIN,
            noticed_by=(by or f"{socket.gethostname()}@{os.getpid()}")[:190],
        )
        partitions.update(next_offset=rewind.next_offset, epoch=rewind.epoch)
        rewind.save(using=using, force_insert=True)
        _pass_by_groups(rewind, using)
    note({partition_id: End(rewind.next_offset, rewind.epoch)}, using)
    return rewind


def _pass_by_groups(rewind: Rewind, using: str) -> None:
    """Move the cursors that wait for an offset that is left out, and cover what they pass."""
    rows = Cursor.objects.using(using).filter(partition=rewind.partition_id, replay=0)
    # A cursor that an ordered group holds passes it at a claim, once its delivery has ended.
    waiting = rows.filter(next_offset__gte=rewind.first_offset, open_delivery=None)
    for cursor in waiting.filter(next_offset__lt=rewind.next_offset).order_by("pk"):
        # Locked by its key, and read again: a claim may have passed it meanwhile.
        locked = rows.select_for_update().filter(pk=cursor.pk, next_offset=cursor.next_offset)
        if not locked.filter(open_delivery=None).values_list("pk"):
            continue
        start, end = cursor.next_offset, rewind.next_offset
        move_cursor(cursor, start, end, UtcNow(), using, thread=REWOUND)


def readable(partition_id: int, epoch: int, start: int, end: int, using: str) -> range:
    """Return the first part of the offsets ``start`` … ``end`` - 1 without what is left out.

    ``epoch`` is that of the partition, read with ``end``. The part begins at ``end`` if all of it
    is left out.
    """
    left = _readable(holes(partition_id, epoch, using), start, end)
    if left.start > start:
        # A failover that loses a jump may lead to another one of the same epoch. What is passed is
        # never read again, so it is passed by what the database says now.
        _holes.pop((using, partition_id), None)
        left = _readable(holes(partition_id, epoch, using), start, end)
    return left


def _readable(found: tuple[Hole, ...], start: int, end: int) -> range:
    for hole in found:
        if start < hole.offsets.start:
            return range(start, min(end, hole.offsets.start))
        if start < hole.offsets.stop:
            start = min(end, hole.offsets.stop)
    return range(start, end)


def newest(partition: Partition, count: int, using: str) -> int:
    """Return the offset from which on a log has ``count`` messages; below 0 if it had fewer."""
    return moved(partition, partition.next_offset, -count, using)


def moved(partition: Partition, offset: int, by: int, using: str) -> int:
    """Return the offset ``by`` messages after ``offset``, before it if ``by`` is negative.

    It need not be in the log.
    """
    found = [hole.offsets for hole in holes(partition.pk, partition.epoch, using)]
    if by < 0:
        for hole in reversed(found):
            above = max(0, offset - hole.stop)
            if hole.start >= offset:
                continue
            if above >= -by:
                break
            offset, by = hole.start, by + above
    else:
        for hole in found:
            below = max(0, hole.start - offset)
            if hole.stop <= offset:
                continue
            if below >= by:
                break
            offset, by = hole.stop, by - below
    return offset + by


def left_out(partition: Partition, start: int, end: int, using: str) -> int:
    """Return how many of the offsets ``start`` … ``end`` - 1 no message has after a rewind."""
    found = [hole.offsets for hole in holes(partition.pk, partition.epoch, using)]
    return sum(max(0, min(end, hole.stop) - max(start, hole.start)) for hole in found)


def epoch_of(partition: Partition, offset: int, using: str) -> int:
    """Return how often the log had been rewound when ``offset`` was given."""
    found = holes(partition.pk, partition.epoch, using)
    return max((hole.epoch for hole in found if hole.offsets.stop <= offset), default=0)


def holes(partition_id: int, epoch: int, using: str) -> tuple[Hole, ...]:
    """Return what is left out in a partition whose epoch is ``epoch``, as it rises."""
    if not epoch:
        return ()
    kept, found = _holes.get((using, partition_id), (0, ()))
    if kept != epoch:
        rows = Rewind.objects.using(using).filter(partition=partition_id, epoch__lte=epoch)
        columns = rows.order_by("first_offset").values_list("first_offset", "next_offset", "epoch")
        # A plain read may come from a replica that has not got the row yet.
        with nullcontext() if in_transaction(using) else own_transaction(using):
            found = tuple(Hole(range(first, end), of) for first, end, of in columns)
        if found and found[-1].epoch == epoch and not in_test_case(using):
            _holes[using, partition_id] = epoch, found
    return found


def _last_offset(partition_id: int, using: str) -> int:
    log = Message.objects.using(using).filter(partition=partition_id)
    found: int | None = log.aggregate(last=Max("offset"))["last"]
    return -1 if found is None else found


def _tell(partition_id: int, old: End, using: str) -> None:
    partition = Partition.objects.using(using).select_related("topic").filter(pk=partition_id)
    name = partition.first()
    if name is None:
        return
    rows = Rewind.objects.using(using).filter(partition=partition_id, epoch__gt=old.epoch)
    for rewind in rows.order_by("epoch"):
        logger.critical(
            "%s was rewound: it ended at offset %d, and had reached %d. A failover or a restore has"
            " lost commits, and messages with them. New messages get offsets from %d on",
            *(name, rewind.first_offset, rewind.known_offset, rewind.next_offset),
            extra=event(
                "log.rewound",
                topic=name.topic.name,
                partition=name.number,
                epoch=rewind.epoch,
                first_offset=rewind.first_offset,
                known_offset=rewind.known_offset,
                next_offset=rewind.next_offset,
                database=using,
            ),
        )
        count("ems_log_rewound_total", name.topic.name, "", str(name.number))
