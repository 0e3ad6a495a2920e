"""Lets a log jump because an operator knows that it had come further than its end says."""

from __future__ import annotations

import re

from streams.errors import OffsetOutOfRange, UnknownPartition
from streams.log.ends import End
from streams.log.rewinds import HIGHEST, jump
from streams.models import Partition, Rewind

OPERATOR = "ems_doctor --rewound"
PLACE = re.compile(r"(?P<topic>.+)/(?P<number>\d{1,9}):(?P<offset>\d{1,19})", re.ASCII)


def declare(told: str, using: str) -> tuple[Partition, Rewind | None]:
    """Let a log go on beyond the highest offset that was ever given: ``TOPIC/PARTITION:OFFSET``.

    Returns the partition as it was, and what is left out; None if the log has come beyond that
    offset already. Raises UnknownPartition and OffsetOutOfRange.
    """
    found = PLACE.fullmatch(told)
    if found is None:
        raise UnknownPartition(f"{told!r} is not TOPIC/PARTITION:OFFSET, such as orders/0:1200.")
    rows = Partition.objects.using(using).select_related("topic")
    row = rows.filter(topic__name=found["topic"], number=int(found["number"])).first()
    if row is None:
        raise UnknownPartition(f"There is no partition {found['topic']}/{found['number']}.")
    offset = int(found["offset"])
    if offset >= HIGHEST:
        raise OffsetOutOfRange(f"No log reaches the offset {offset}.")
    return row, jump(row.pk, End(offset + 1, row.epoch), using, by=OPERATOR)
