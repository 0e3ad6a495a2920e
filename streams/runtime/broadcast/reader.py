"""How one client of a broadcast group reads its topic: from its own positions, without a lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import connections

from streams import sql
from streams.conf import CLAIM_BYTES
from streams.models import ConsumerGroup, Delivery, Kind, Message, Partition, Start
from streams.runtime.broadcast.position import Position, Positions
from streams.transactions import own_transaction, retrying

logger = logging.getLogger("streams.broadcast")

# Bodies that are not there, though not purged, are looked for again for so long: after a failover
# they may yet come. The same as the first retry of a cluster group.
ABSENT_SECONDS = 10.0
# While there is enough to read, the partitions are looked at so often, for new ones and for an
# even turn.
REFRESH_SECONDS = 1.0
# After a restore, messages that were sequenced so much before the last one read are read again:
# the clock of the new server may be behind that of the old one.
CLOCK_MARGIN = timedelta(minutes=1)


class Reader:
    """Gives out stretches of the log as deliveries that are in no table, and moves the positions.

    Used by one thread; ``behind`` by any.
    """

    def __init__(self, group: ConsumerGroup, topic: str, positions: Positions, using: str) -> None:
        self.missed = 0  # messages that were gone before they were read
        self._group = group
        self._topic = topic
        self._positions = positions
        self._using = using
        self._partitions: dict[int, Partition] = {}  # by id
        self._absent: dict[int, tuple[int, float]] = {}  # by number: the offset, and since when
        self._checked_on: object = None
        self._refreshed = 0.0
        self._turn = 0

    def begin(self) -> None:
        """Take the positions, or check them, and keep them, before anything is read.

        Written even when they are what they were: a disk that is full says so now.
        """
        rows = self._rows()
        if not self._positions.taken:
            for row in rows:
                self._positions.known[row.number] = self._start(row)
        self._look(rows)
        self._positions.save()

    def behind(self, ends: Mapping[int, int]) -> bool:
        """Whether there is something to read, or to be noticed, if partitions end there (by id)."""
        partitions = self._partitions
        for partition_id, end in ends.items():
            row = partitions.get(partition_id)
            if row is None:
                return True  # a new one
            if self._positions.known[row.number].offset != end and not self._waits(row):
                return True
        return False

    def take(self, batch: int) -> Delivery | None:
        """The next stretch of at most ``batch`` messages; None if there is nothing to read."""
        if time.monotonic() - self._refreshed > REFRESH_SECONDS or not self._readable():
            self._look(self._rows(), keep=True)
        readable = self._readable()
        if not readable:
            return None
        self._turn += 1
        row = readable[self._turn % len(readable)]
        start = self._positions.known[row.number].offset
        end = self._bounded_in_bytes(row.pk, start, min(row.next_offset, start + batch))
        delivery = Delivery(first_offset=start, last_offset=end - 1, progress=start, kind=Kind.NEW)
        # Before it is given its relations: otherwise the project's routers would be asked.
        delivery._state.db = self._using
        delivery.group, delivery.partition = self._group, row
        return delivery

    def move(
        self, delivery: Delivery, progress: int, message_id: int, instant: datetime | None
    ) -> None:
        """What is below ``progress`` is done; the rest describes the message just before it."""
        position = Position(progress, message_id, instant)
        self._positions.known[delivery.partition.number] = position
        self._positions.save()
        delivery.progress = progress

    def note_absent(self, row: Partition) -> None:
        """The next message of this partition was not to be read: purged meanwhile, or gone."""
        row = self._on_primary(row)
        offset = self._positions.known[row.number].offset
        self._look([row], keep=True)
        if self._positions.known[row.number].offset != offset:
            return  # purged, and told
        known, since = self._absent.get(row.number, (None, 0.0))
        if known != offset:
            logger.error(
                "%s: the message at %s/%d offset %d cannot be read; looking again for %d s",
                *(self._group.name, self._topic, row.number, offset, ABSENT_SECONDS),
            )
            self._absent[row.number] = (offset, time.monotonic())
        elif time.monotonic() - since >= ABSENT_SECONDS:
            self._pass_over(row, self._next_kept(row, offset), "are gone (deleted or truncated)")
            self._positions.save()

    # -- positions --

    def _look(self, rows: Sequence[Partition], *, keep: bool = False) -> None:
        """Bring the positions into agreement with what the log holds now."""
        before = dict(self._positions.known)
        # Another connection may be to another server, or to what was restored meanwhile.
        connection = connections[self._using].connection
        anew, self._checked_on = connection is not self._checked_on, connection
        current = {}
        for row in rows:
            # What grew after the positions were taken is read from its beginning.
            position = self._positions.known.setdefault(row.number, Position(0))
            if position.offset > row.next_offset:
                row = self._on_primary(row)  # a replica may only be late
            if position.offset > row.next_offset or (anew and self._contradicts(row, position)):
                self._go_back(row, position)
            if self._positions.known[row.number].offset < row.first_offset:
                self._pass_over(row, row.first_offset, "have been purged")
            current[row.pk] = row
        self._partitions = {**self._partitions, **current}
        self._refreshed = time.monotonic()
        if keep and self._positions.known != before:
            self._positions.save()

    def _start(self, row: Partition) -> Position:
        if self._group.start == Start.EARLIEST:
            return Position(row.first_offset)
        newest = self._message_before(row, row.next_offset)
        return Position(row.next_offset, *(newest or (None, row.last_sequenced_at)))

    def _contradicts(self, row: Partition, position: Position) -> bool:
        """Whether the message before the position is another one than it was."""
        if position.message_id is None:
            return False
        found = self._message_before(row, position.offset)
        return found is not None and found != (position.message_id, position.sequenced_at)

    def _go_back(self, row: Partition, position: Position) -> None:
        """The log is not the one that was read: go on with what was sequenced since.

        What this client had read was sequenced at or before the instant that it has noted; what
        came into the log after the restore, later. No message is left out, few come again.
        """
        offset = row.first_offset
        if position.sequenced_at:
            offset = offset_since(row, position.sequenced_at - CLOCK_MARGIN, self._using)
        logger.error(
            "%s: %s/%d is not the log that was read up to offset %d: the database was restored,"
            " or replaced. Going on at offset %d (the log has %d … %d): see to what this client"
            " has made of messages that are lost",
            *(self._group.name, self._topic, row.number, position.offset),
            *(offset, row.first_offset, row.next_offset - 1),
        )
        before = self._message_before(row, offset) or (None, position.sequenced_at)
        self._positions.known[row.number] = Position(offset, *before)
        self._absent.pop(row.number, None)

    def _pass_over(self, row: Partition, to: int, why: str) -> None:
        position = self._positions.known[row.number]
        self.missed += to - position.offset
        logger.error(
            "%s has missed %d messages of %s/%d: offsets %d … %d %s",
            *(self._group.name, to - position.offset, self._topic, row.number),
            *(position.offset, to - 1, why),
        )
        self._positions.known[row.number] = Position(to, None, position.sequenced_at)
        self._absent.pop(row.number, None)

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

    def _rows(self) -> list[Partition]:
        partitions = Partition.objects.using(self._using).filter(topic=self._group.topic_id)
        return retrying(lambda: list(partitions.order_by("number")), self._using)

    def _on_primary(self, row: Partition) -> Partition:
        """As it is now, wherever a proxy sends plain reads."""

        def read() -> Partition:
            with own_transaction(self._using):
                rows = Partition.objects.using(self._using).select_for_update()
                return rows.filter(pk=row.pk).first() or row

        return retrying(read, self._using)

    def _message_before(self, row: Partition, offset: int) -> tuple[int, datetime | None] | None:
        messages = Message.objects.using(self._using).filter(partition=row.pk, offset=offset - 1)
        found = messages.values_list("pk", "sequenced_at")
        return retrying(lambda: found.first(), self._using)

    def _next_kept(self, row: Partition, offset: int) -> int:
        def read() -> int | None:
            with own_transaction(self._using):
                log = Message.objects.using(self._using).select_for_update()
                kept = log.filter(partition=row.pk, offset__gte=offset).order_by("offset")
                return kept.values_list("offset", flat=True).first()

        found = retrying(read, self._using)
        return row.next_offset if found is None else found

    def _bounded_in_bytes(self, partition_id: int, start: int, end: int) -> int:
        """The end of what may be in memory at once; at least one message."""
        if end == start + 1:
            return end
        statement = sql.SIZES[connections[self._using].vendor]
        place = [partition_id, start, end]
        sizes = retrying(lambda: sql.fetch(self._using, statement, place), self._using)
        total = 0
        for offset, size in sizes:
            total += size
            if total > CLAIM_BYTES and offset > start:
                return int(offset)
        return end


def offset_since(row: Partition, instant: datetime, using: str) -> int:
    """The offset of the first message kept that was sequenced at ``instant`` or later.

    A binary search: the times of a log never fall as its offsets rise.
    """
    messages = Message.objects.using(using).filter(partition=row.pk, offset__isnull=False)
    low, high = row.first_offset, row.next_offset
    while low < high:
        middle = (low + high) // 2
        following = messages.filter(offset__gte=middle, offset__lt=high).order_by("offset")
        found = retrying(
            lambda rows=following: rows.values_list("offset", "sequenced_at").first(),  # type: ignore[misc]
            using,
        )
        if found is None or found[1] >= instant:
            high = middle
        else:
            low = found[0] + 1
    return low
