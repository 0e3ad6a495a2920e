"""Names a place in a log: an end, an offset, a time, or a distance from where the group is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from streams.errors import InvalidTarget, NaiveDatetime
from streams.log.offsets import offset_at
from streams.log.rewinds import moved
from streams.models import Partition

EARLIEST, LATEST = "earliest", "latest"

NUMBER = re.compile(r"(?P<sign>[+-]?)[0-9]{1,18}")

TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:.*")


@dataclass(frozen=True)
class Target:
    """Holds a place in a log, in one of five forms; ``offset`` gives its offset in a partition."""

    end: str = ""  # EARLIEST or LATEST
    number: int | None = None
    time: datetime | None = None
    relative: int | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse ``earliest``, ``latest``, ``1200``, ``2026-11-20T10:00Z``, ``+10`` or ``-10``.

        Raises InvalidTarget, and NaiveDatetime for a time without a time zone.
        """
        text = text.strip()
        if text in (EARLIEST, LATEST):
            return cls(end=text)
        if match := NUMBER.fullmatch(text):
            return cls(relative=int(text)) if match["sign"] else cls(number=int(text))
        try:
            time = parse_datetime(text) if TIME.fullmatch(text) else None
        except ValueError:  # such as 31 February
            time = None
        if time is None:
            raise InvalidTarget(
                _(
                    "%r is no place in a log: say earliest, latest, an offset,"
                    " a time such as 2026-11-20T10:00Z, +N or -N."
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
