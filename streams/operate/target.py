"""Names where to go in a log: an end, an offset, a time, or a distance from where the group is."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from streams.errors import InvalidPlace, InvalidTarget, NaiveDatetime
from streams.log.offsets import offset_at
from streams.log.places import NUMBER, LogPlace, whole
from streams.log.rewinds import moved
from streams.models import ConsumerGroup, Partition

EARLIEST, LATEST = "earliest", "latest"

OFFSET = re.compile(rf"(?P<sign>[+-]?)(?P<number>{NUMBER})")
# Digits of an offset or a distance.
DIGITS = 18

TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:.*")


@dataclass(frozen=True)
class Target:
    """Where to go in a log; ``offset`` gives the offset of that in a partition."""

    end: str = ""  # EARLIEST or LATEST
    number: int | None = None
    time: datetime | None = None
    relative: int | None = None
    place: LogPlace | None = None  # of ``number``, if it is in one partition alone

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse ``earliest``, ``1200``, ``orders/2@1,200``, ``2026-11-20T10:00Z`` or ``-10``.

        Raises InvalidTarget, and NaiveDatetime for a time without a time zone.
        """
        text = text.strip()
        if text in (EARLIEST, LATEST):
            return cls(end=text)
        match = OFFSET.fullmatch(text)
        if match and sum(map(str.isdigit, text)) <= DIGITS:
            number = whole(match["number"])
            if not match["sign"]:
                return cls(number=number)
            return cls(relative=-number if match["sign"] == "-" else number)
        with suppress(InvalidPlace):
            place = LogPlace.parse(text)
            if place.is_one:
                return cls(number=place.first, place=place)
        try:
            time = parse_datetime(text) if TIME.fullmatch(text) else None
        except ValueError:  # such as 31 February
            time = None
        if time is None:
            raise InvalidTarget(
                _(
                    "%r is not a place in a log: say earliest, latest, an offset, one of a"
                    " partition"
                    " such as orders/2@1200, a time such as 2026-11-20T10:00Z, +N or -N."
                )
                % text
            )
        if time.tzinfo is None:
            raise NaiveDatetime(
                _("%(time)s is ambiguous: say the time zone, as in %(time)sZ or %(time)s+01:00.")
                % {"time": text}
            )
        return cls(time=time)

    @property
    def is_absolute(self) -> bool:
        """Tell whether the target is an offset or a time."""
        return self.number is not None or self.time is not None

    def only(self, group: ConsumerGroup, number: int | None, using: str) -> int | None:
        """Return the number of the one partition that is meant: that of the place, or ``number``.

        Raises InvalidTarget if the place is in another log.
        """
        if self.place is None:
            return number
        partition = self.place.partition(using)
        is_its = partition is not None and partition.topic_id == group.topic_id
        if partition is None or not is_its or number not in (None, partition.number):
            raise InvalidTarget(
                _("%(place)s is not in the log that is meant, which is one of %(topic)s.")
                % {"place": self.place, "topic": group.topic.name}
            )
        return partition.number

    def offset(self, partition: Partition, position: int = 0) -> int:
        """Return the offset of this target in ``partition``; it need not be in the log.

        ``position`` is the offset at which the group is.
        """
        if self.end:
            return partition.first_offset if self.end == EARLIEST else partition.next_offset
        if self.time is not None:
            return offset_at(partition, self.time)
        if self.relative is not None:
            return moved(partition, position, self.relative, partition._state.db or "default")
        return self.number or 0
