"""What a broadcast client asks of the log: plain reads, and locking ones only when in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connections

from streams import sql
from streams.conf import CLAIM_BYTES
from streams.database.retrying import retrying
from streams.models import Message, Partition
from streams.transactions import own_transaction


@dataclass(frozen=True)
class Log:
    """The partitions of a topic, and the messages in them."""

    topic_id: int
    using: str

    def partitions(self) -> list[Partition]:
        rows = Partition.objects.using(self.using).filter(topic=self.topic_id).order_by("number")
        return retrying(lambda: list(rows), self.using)

    def on_primary(self, row: Partition) -> Partition:
        """The partition as it is now, wherever a proxy sends plain reads."""

        def read() -> Partition | None:
            with own_transaction(self.using):
                rows = Partition.objects.using(self.using).select_for_update()
                return rows.filter(pk=row.pk).first()

        return retrying(read, self.using) or row

    def message_before(self, row: Partition, offset: int) -> tuple[int, datetime | None] | None:
        """Id and instant of the message just before ``offset``; None if it is not kept."""
        messages = Message.objects.using(self.using).filter(partition=row.pk, offset=offset - 1)
        found = messages.values_list("pk", "sequenced_at")
        return retrying(lambda: found.first(), self.using)

    def next_kept(self, row: Partition, offset: int) -> int:
        """The first offset from here on that has a message, on the primary; or else the end."""

        def read() -> int | None:
            with own_transaction(self.using):
                messages = Message.objects.using(self.using).select_for_update()
                kept = messages.filter(partition=row.pk, offset__gte=offset).order_by("offset")
                return kept.values_list("offset", flat=True).first()

        found = retrying(read, self.using)
        return row.next_offset if found is None else found

    def since(self, row: Partition, instant: datetime) -> int:
        """The offset of the first message kept that was sequenced at ``instant`` or later.

        A binary search: the times of a log never fall as its offsets rise.
        """
        messages = Message.objects.using(self.using).filter(partition=row.pk)
        low, high = row.first_offset, row.next_offset
        while low < high:
            middle = (low + high) // 2
            following = messages.filter(offset__gte=middle, offset__lt=high).order_by("offset")
            places = following.values_list("offset", "sequenced_at")
            found = retrying(lambda rows=places: rows.first(), self.using)  # type: ignore[misc]
            if found is None or found[1] >= instant:
                high = middle
            else:
                low = found[0] + 1
        return low

    def end_in_bytes(self, row: Partition, start: int, end: int) -> int:
        """``end``, or so much less that the bodies fit into memory; one message always does."""
        if end == start + 1:
            return end
        statement = sql.SIZES[connections[self.using].vendor]
        place = [row.pk, start, end]
        total = 0
        for offset, size in retrying(lambda: sql.fetch(self.using, statement, place), self.using):
            total += size
            if total > CLAIM_BYTES and offset > start:
                return int(offset)
        return end
