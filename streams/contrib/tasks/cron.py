"""Says when a schedule is due: a cron expression of five fields, in a time zone, or every so long.

A time of a day that does not exist, in the night in which clocks go forward, is due as long after
the change; one that comes twice is due once, at the first. With ``*`` as the hour, each hour counts
that passes: the one that comes twice, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
# The longest time between two days that match: the 29th of February over the year 2100.
MOST_DAYS = 366 * 8 + 2

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidSchedule(ValueError):
    """The expression of a schedule cannot be read."""


@dataclass(frozen=True)
class Every:
    """A tick each ``period``, counted from 1970 on: all processes have the same ones."""

    period: timedelta

    def newest(self, now: datetime) -> datetime:
        """Return the newest tick that is not after ``now``."""
        return now - (now - EPOCH) % self.period

    def after(self, instant: datetime) -> datetime:
        """Return the first tick after ``instant``."""
        return self.newest(instant) + self.period


@dataclass(frozen=True)
class Cron:
    """A tick at each minute that the five fields name."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # Sunday is 0
    any_hour: bool
    # With both of them limited, one is enough: as in every cron.
    any_day: bool
    any_weekday: bool
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> Cron:
        """Read five fields; raises InvalidSchedule."""
        parts = text.split()
        if len(parts) != 5:
            raise InvalidSchedule(f"{text!r} does not have the five fields of cron")
        minute, hour, day, month, weekday = parts
        found = cls(
            _field(minute, 0, 59),
            _field(hour, 0, 23),
            _field(day, 1, 31),
            _field(month, 1, 12, MONTHS, 1),
            frozenset(number % 7 for number in _field(weekday, 0, 7, WEEKDAYS)),
            hour.startswith("*"),
            day.startswith("*"),
            weekday.startswith("*"),
            zone,
        )
        try:
            found.after(EPOCH)
        except InvalidSchedule:
            raise InvalidSchedule(f"{text!r} names no day that there is") from None
        return found

    def newest(self, now: datetime) -> datetime:
        """Return the newest tick that is not after ``now``."""
        first = now.astimezone(self.zone).date() + DAY
        for back in range(MOST_DAYS):
            if ticks := [one for one in self._ticks(first - back * DAY) if one <= now]:
                return ticks[-1]
        raise InvalidSchedule("there is no such day")

    def after(self, instant: datetime) -> datetime:
        """Return the first tick after ``instant``."""
        first = instant.astimezone(self.zone).date() - DAY
        for ahead in range(MOST_DAYS):
            for tick in self._ticks(first + ahead * DAY):
                if tick > instant:
                    return tick
        raise InvalidSchedule("there is no such day")

    def _ticks(self, day: date) -> list[datetime]:
        if not self._matches(day):
            return []
        return sorted(set(self._instants(day)))

    def _instants(self, day: date) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                wall = datetime.combine(day, time(hour, minute), tzinfo=self.zone)
                yield wall.astimezone(UTC)
                if self.any_hour:
                    again = wall.replace(fold=1).astimezone(UTC)
                    if again > wall.astimezone(UTC):
                        yield again

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return in_month and in_week
        return in_month or in_week


def _field(
    text: str, least: int, most: int, names: list[str] | None = None, first: int = 0
) -> frozenset[int]:
    """Read one field: ``*``, numbers, names, ranges, steps and lists of them."""

    def number(part: str) -> int:
        if names and part.lower() in names:
            return names.index(part.lower()) + first
        if not part.isdecimal() or not least <= int(part) <= most:
            raise InvalidSchedule(f"{part!r} is not from {least} to {most}")
        return int(part)

    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or not int(step)):
            raise InvalidSchedule(f"{part!r} has a step that is no number above 0")
        if span == "*":
            begin, end = least, most
        else:
            low, dash, high = span.partition("-")
            begin = number(low)
            end = number(high) if dash else most if slash else begin
        if begin > end:
            raise InvalidSchedule(f"{part!r} ends before it begins")
        found.update(range(begin, end + 1, int(step) if slash else 1))
    return frozenset(found)
