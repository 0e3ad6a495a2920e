"""Positions for the tests of host projects: rows, so that they end with the test's transaction."""

from __future__ import annotations

from streams.models import ConsumerGroup, Cursor, Partition
from streams.runtime.broadcast.position import Position, Positions


class RowPositions(Positions):
    """Those of the one client that ``streams.testing`` plays.

    It has listened since before the test, so all that the test sends is for it, whatever the
    group's ``start`` is. In production a broadcast group has no cursors.
    """

    def __init__(self, group: ConsumerGroup, using: str) -> None:
        self._group = group
        self._cursors = Cursor.objects.using(using).filter(group=group.pk, replay=0)
        self._partitions = Partition.objects.using(using).filter(topic=group.topic_id)
        rows = self._cursors.values_list("partition__number", "next_offset")
        super().__init__({number: Position(offset) for number, offset in rows})

    def save(self) -> None:
        for id_, number in self._partitions.values_list("pk", "number"):
            if position := self.known.get(number):
                self._cursors.update_or_create(
                    group_id=self._group.pk,
                    partition_id=id_,
                    replay=0,
                    # No delivery covers what is before it: for the audit it has just begun.
                    defaults={"next_offset": position.offset, "start_offset": position.offset},
                )
