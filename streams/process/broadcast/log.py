"""Reads the log for a broadcast client: plain reads, and locking ones only when in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.models import Message, Partition


@dataclass(frozen=True)
class Log:
    """The partitions of a topic, and the messages in them."""

    topic_id: int
    using: str

    def partitions(self) -> list[Partition]:
        rows = Partition.objects.using(self.using).filter(topic=self.topic_id).order_by("number")
        return retrying(list, self.using, rows)

    def on_primary(self, row: Partition) -> Partition:
        """Return the partition as it is on the primary, wherever a proxy sends plain reads."""

        def read() -> Partition | None:
            with own_transaction(self.using):
                rows = Partition.objects.using(self.using).select_for_update()
                return rows.filter(pk=row.pk).first()

        return retrying(read, self.using) or row

    def message_before(self, row: Partition, offset: int) -> tuple[int, datetime | None] | None:
        """Return id and sequenced_at of the message just before ``offset``; None if it is gone."""
        messages = Message.objects.using(self.using).filter(partition=row.pk, offset=offset - 1)
        found = messages.values_list("pk", "sequenced_at")
        return retrying(found.first, self.using)

    def next_kept(self, row: Partition, offset: int) -> int:
        """Return the first offset from ``offset`` on with a message on the primary, or the end."""

        def read() -> int | None:
            with own_transaction(self.using):
                messages = Message.objects.using(self.using).select_for_update()
                kept = messages.filter(partition=row.pk, offset__gte=offset).order_by("offset")
                return kept.values_list("offset", flat=True).first()

        found = retrying(read, self.using)
        return row.next_offset if found is None else found
