"""Reads a topic for one client of a broadcast group, from its own positions, without a lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from streams.database.retrying import retrying
from streams.log import rewinds
from streams.log.bodies import bounded_in_bytes
from streams.log.offsets import offset_at
from streams.log.sequencer import sequence
from streams.logs import event
from streams.models import ConsumerGroup, Partition, Start
from streams.operate.target import Target
from streams.process.broadcast.log import Log
from streams.process.broadcast.position import Position, Positions
from streams.telemetry import count

logger = logging.getLogger("streams.broadcast")

# A body that is absent, though not purged, is looked for again for this many seconds: after a
# failover the new primary may not have caught up. As long as the first retry delay of a cluster
# group.
ABSENT_SECONDS = 10.0
# Seconds between two looks at the partitions while there is enough to read: for new partitions, and
# so that all have their turn.
REFRESH_SECONDS = 1.0
# After a restore, messages that were sequenced up to this long before the last one read are read
# again: the clock of the new server may be behind that of the old one.
CLOCK_MARGIN = timedelta(minutes=1)


@dataclass
class Stretch:
    """A range of offsets of one partition; ``progress`` is the next one to settle."""

    partition: Partition
    first_offset: int
    last_offset: int
    progress: int


class BroadcastReader:
    """A reader that gives out stretches of the log, and moves the positions of the client.

    One thread uses it; ``behind`` may be called from any thread.
    """

    def __init__(self, group: ConsumerGroup, topic: str, positions: Positions, using: str) -> None:
        self.missed = 0  # messages that were gone before they were read
        self._group = group
        self._topic = topic
        self._positions = positions
        self.using = using
        self._log = Log(group.topic_id, using)
        self._partitions: dict[int, Partition] = {}  # by id
        self._absent: dict[int, tuple[int, float]] = {}  # by number: the offset, and since when
        self._checked_on: object = None
        self._refreshed = 0.0
        self._turn = 0

    def begin(self) -> None:
        """Set the first positions, or check the known ones, and save them before anything is read.

        Unchanged positions are saved, too: a full disk is then noticed before any message is read.
        """
        if not self._positions.taken:
            if self._group.start == Start.LATEST:
                # What is committed by now comes into the log now: it is not newer than the start.
                while sequence(self.using, [row.pk for row in self._log.partitions()]).more:
                    pass
            for row in self._log.partitions():
                self._positions.known[row.number] = self._start(row)
        self._look()
        self._positions.save()

    @property
    def sure(self) -> bool:
        """Tell whether this is still the connection on which the positions were checked.

        A new connection may be to another server, or to a restored database.
        """
        return connections[self.using].connection is self._checked_on

    def behind(self, ends: Mapping[int, int]) -> bool:
        """Tell whether there is something to read or to check, given the ``ends`` of partitions.

        ``ends`` maps ids of partitions to their next offsets.
        """
        partitions = self._partitions
        for partition_id, end in ends.items():
            row = partitions.get(partition_id)
            if row is None:
                return True  # a new one
            if self._positions.known[row.number].offset != end and not self._waits(row):
                return True
        return False

    def place(self) -> tuple[dict[int, int], int]:
        """Return the next offsets by partition number, and how many messages come after them."""
        offsets = {
            number: position.offset for number, position in list(self._positions.known.items())
        }
        rows = retrying(self._log.partitions, self.using)
        ends = {row.number: row.next_offset for row in rows}
        return offsets, sum(max(0, ends.get(n, 0) - offset) for n, offset in offsets.items())

    def take(self, batch: int) -> Stretch | None:
        """Return the next stretch of at most ``batch`` messages; None if there is none to read."""
        old = time.monotonic() - self._refreshed > REFRESH_SECONDS
        if old or not self.sure or not self._readable():
            self._look()
        readable = self._readable()
        if not readable:
            return None
        self._turn += 1
        row = readable[self._turn % len(readable)]
        before = self._positions.known[row.number]
        # A log that was rewound leaves offsets out: they are passed, and nothing is missed.
        left = rewinds.readable(row.pk, row.epoch, before.offset, row.next_offset, self.using)
        if left.start > before.offset:
            self._positions.known[row.number] = Position(left.start, None, before.sequenced_at)
            self._positions.save()
        if not left:
            return None
        start, end = left.start, min(left.stop, left.start + batch)
        end = retrying(bounded_in_bytes, self.using, row.pk, start, end, self.using)
        return Stretch(row, start, end - 1, progress=start)

    def move(
        self, stretch: Stretch, progress: int, message_id: int, instant: datetime | None
    ) -> None:
        """Move the position to ``progress``, and save it.

        ``message_id`` and ``instant`` are the id and sequenced_at of the message just before it.
        """
        position = Position(progress, message_id, instant)
        self._positions.known[stretch.partition.number] = position
        self._positions.save()
        stretch.progress = progress

    def note_absent(self, row: Partition) -> None:
        """Note that the next message of this partition is absent: purged meanwhile, or gone.

        A purged message is passed at once, any other one after ABSENT_SECONDS.
        """
        row = self._log.on_primary(row)
        offset = self._positions.known[row.number].offset
        self._partitions[row.pk] = row = self._agreed(row, anew=False)
        if self._positions.known[row.number].offset != offset:
            self._positions.save()
            return  # purged, and logged
        known, since = self._absent.get(row.number, (None, 0.0))
        if known != offset:
            logger.error(
                "%s: the message %s/%d@%d cannot be read; looking again for %d s",
                *(self._group.name, self._topic, row.number, offset, ABSENT_SECONDS),
                extra=event("broadcast.unreadable", **self._place(row), offset=offset),
            )
            self._absent[row.number] = (offset, time.monotonic())
        elif time.monotonic() - since >= ABSENT_SECONDS:
            self._pass_over(
                row, self._log.next_kept(row, offset), "are gone (deleted or truncated)"
            )
            self._positions.save()

    # -- positions --

    def _look(self) -> None:
        """Check the positions against what the log holds now, and correct them."""
        before = dict(self._positions.known)
        rows = self._log.partitions()
        anew = not self.sure
        self._checked_on = connections[self.using].connection
        self._partitions = {row.pk: self._agreed(row, anew=anew) for row in rows}
        self._refreshed = time.monotonic()
        if self._positions.known != before:
            self._positions.save()

    def _agreed(self, row: Partition, *, anew: bool) -> Partition:
        # A partition that was added after the positions were taken is read from its beginning.
        position = self._positions.known.setdefault(row.number, Position(0))
        if position.offset > row.next_offset:
            row = self._log.on_primary(row)  # a replica may be behind
        if position.offset > row.next_offset or (anew and self._contradicts(row, position)):
            self._go_back(row, position)
        if self._positions.known[row.number].offset < row.first_offset:
            self._pass_over(row, row.first_offset, "have been purged")
        return row

    def _start(self, row: Partition) -> Position:
        offset = retrying(Target.parse(self._group.start).offset, self.using, row)
        before = self._log.message_before(row, offset)
        if offset == row.next_offset:
            return Position(offset, *(before or (None, row.last_sequenced_at)))
        return Position(offset, *(before or (None, None)))

    def _contradicts(self, row: Partition, position: Position) -> bool:
        """Tell whether the message before the position is not the one that was read."""
        if position.message_id is None:
            return False
        found = self._log.message_before(row, position.offset)
        return found is not None and found != (position.message_id, position.sequenced_at)

    def _go_back(self, row: Partition, position: Position) -> None:
        """Move the position back in a log that is not the one that was read (after a restore).

        What this client had read was sequenced at or before the instant in its position, and what
        came into the log after the restore, later. So no message is left out, and few come again.
        """
        offset = row.first_offset
        if position.sequenced_at:
            offset = retrying(offset_at, self.using, row, position.sequenced_at - CLOCK_MARGIN)
        logger.error(
            "%s: %s/%d is not the log that was read up to offset %d: the database was restored,"
            " or replaced. Going on at offset %d (the log has %d … %d): check what this client"
            " has done with messages that are lost",
            *(self._group.name, self._topic, row.number, position.offset),
            *(offset, row.first_offset, row.next_offset - 1),
            extra=event("broadcast.rewound", **self._place(row), offset=offset),
        )
        count("ems_log_rewound_total", self._topic, self._group.name, str(row.number))
        before = self._log.message_before(row, offset) or (None, position.sequenced_at)
        self._positions.known[row.number] = Position(offset, *before)
        self._absent.pop(row.number, None)

    def _pass_over(self, row: Partition, to: int, why: str) -> None:
        position = self._positions.known[row.number]
        self.missed += to - position.offset
        logger.error(
            "%s has missed %d messages of %s/%d: offsets %d … %d %s",
            *(self._group.name, to - position.offset, self._topic, row.number),
            *(position.offset, to - 1, why),
            extra=event(
                "broadcast.missed",
                **self._place(row),
                offset=position.offset,
                count=to - position.offset,
            ),
        )
        self._positions.known[row.number] = Position(to, None, position.sequenced_at)
        self._absent.pop(row.number, None)

    def _place(self, row: Partition) -> dict[str, Any]:
        return {"topic": self._topic, "group": self._group.name, "partition": row.number}

    # -- what there is to read --

    def _readable(self) -> list[Partition]:
        return [
            row
            for row in self._partitions.values()
            if self._positions.known[row.number].offset < row.next_offset and not self._waits(row)
        ]

    def _waits(self, row: Partition) -> bool:
        absent = self._absent.get(row.number)
        return absent is not None and time.monotonic() - absent[1] < ABSENT_SECONDS
