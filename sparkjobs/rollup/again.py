"""Puts minutes that changed after they were counted into stretches that are counted once more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sparkjobs.instants import minute_of
from sparkjobs.rollup.claims import LONG
from sparkjobs.rollup.letters import Minute
from sparkjobs.rollup.remembered import Remembered

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Past:
    """Minutes of groups that are near each other.

    ``late`` are the deliveries that ended in one of them and were not counted; in the other minutes
    only the dead have changed.
    """

    minutes: frozenset[Minute]
    late: Sequence[Remembered]

    @property
    def since(self) -> datetime:
        return min(minute for _group, minute in self.minutes)

    @property
    def until(self) -> datetime:
        return max(minute for _group, minute in self.minutes) + MINUTE

    @property
    def minutes_of_late(self) -> list[Minute]:
        return sorted({minute for one in self.late for minute in _minutes(one)})

    @property
    def oldest_claim(self) -> datetime:
        return min((one.claimed for one in self.late if one.claimed), default=self.since)


def stretches(
    late: Iterable[Remembered], of_letters: Iterable[Minute], longest: timedelta
) -> list[Past]:
    """Return the stretches, the oldest first, each as long as ``longest`` at most.

    Minutes are put together if they are so near that the same deliveries have to be read.
    """
    ended: dict[Minute, list[Remembered]] = {minute: [] for minute in of_letters}
    for one in late:
        for minute in _minutes(one):
            ended.setdefault(minute, []).append(one)
    parts: list[list[Minute]] = []
    for minute in sorted(ended, key=lambda minute: (minute[1], minute[0])):
        part = parts[-1] if parts else []
        near = part and minute[1] - part[-1][1] <= LONG
        if not near or minute[1] - part[0][1] >= longest:
            parts.append(part := [])
        part.append(minute)
    return [
        Past(frozenset(part), [one for minute in part for one in ended[minute]]) for part in parts
    ]


def _minutes(one: Remembered) -> Iterable[Minute]:
    if one.group_id is not None and one.ended is not None:
        yield one.group_id, minute_of(one.ended)
