"""Takes the slots in which the messages of a group with a rate begin, and waits for them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections

from streams.consume.rate import MICROSECONDS, Rate
from streams.database.retrying import retrying
from streams.database.sql import rate as sql
from streams.database.transactions import own_transaction
from streams.models import ConsumerGroup

# A claim may take slots of so many seconds from now: nobody is late then who has to claim first.
AHEAD_SECONDS = 0.25
# Who waits for a slot looks this often whether it is to stop.
SLICE_SECONDS = 0.05


@dataclass
class Slots:
    """Slots that were taken, ``interval`` apart: how many are left, and when the first is.

    Times are of the monotonic clock. That of the server is read between two readings of it: the
    first slot has come by ``earliest``, and a message may begin in it until ``latest``.
    """

    number: int
    earliest: float
    latest: float
    interval: float

    def wait(self, number: int) -> float:
        """Return how many seconds it is until the last of the next ``number`` slots."""
        return self.earliest + (number - 1) * self.interval - time.monotonic()

    def serve(self, number: int) -> bool:
        """Tell whether there are so many slots in which a message may still begin."""
        now = time.monotonic()
        while self.number and now > self.latest:
            self.use(1)
        return number <= self.number

    def use(self, number: int) -> None:
        self.number -= number
        self.earliest += number * self.interval
        self.latest += number * self.interval


NO_SLOTS = Slots(0, 0.0, 0.0, 0.0)


class Starts:
    """The starts of the calls that one thread makes for a group; without a ``rate`` all may start.

    ``whole``: a call has as many messages as it can have. ``tagged``: it is not known before the
    bodies are read how many calls a claim makes, so the slots are taken call by call. ``ahead`` is
    0 where a call begins with its claim.
    """

    def __init__(self, group: ConsumerGroup, using: str) -> None:
        self.rate: Rate | None = None
        self.whole = self.tagged = False
        self.ahead = AHEAD_SECONDS
        self.held_until = 0.0  # of the monotonic clock: nothing may begin before
        self.waited = 0.0  # seconds, all in all
        self._group = group
        self._using = using
        self._slots = NO_SLOTS

    @property
    def held(self) -> bool:
        """Tell whether it is known that nothing may begin now."""
        return self.rate is not None and time.monotonic() < self.held_until

    def look(self) -> bool:
        """Ask, where there is a rate, whether something may begin now."""
        if self.rate is None:
            return True
        if not self.held:
            retrying(self._look, self._using, self.rate)
        return not self.held

    def cut(self, start: int, end: int) -> int:
        """Return how far the claim of these offsets may go; its transaction takes their slots."""
        if self.rate is None or self.tagged:
            return end
        if self.held:
            return start
        return start + self._take(self.rate, end - start)

    def ready(self, number: int, stopped: Callable[[], bool]) -> bool:
        """Wait until ``number`` messages may begin; return False if that is not about now."""
        while self.rate is not None:
            if stopped():
                return False
            if not self._slots.serve(number) and not retrying(
                self._take_alone, self._using, self.rate, number
            ):
                return False
            left = self._slots.wait(number)
            if left <= 0:
                break
            pause = min(left, SLICE_SECONDS)
            time.sleep(pause)
            self.waited += pause
        return True

    def begin(self, number: int, stopped: Callable[[], bool]) -> bool:
        """Let ``number`` messages begin now, in their slots; return False if they must wait."""
        while self.rate is not None:
            if self._slots.serve(number):
                self._slots.use(number)
                break
            if not self.ready(number, stopped):
                return False
        return True

    def _take_alone(self, rate: Rate, number: int) -> bool:
        with own_transaction(self._using):
            return self._take(rate, number, number) == number

    def _take(self, rate: Rate, most: int, least: int = 1) -> int:
        """Take ``most`` slots or fewer, in the open transaction; return how many."""
        if self.whole:
            least = max(least, min(most, rate.at_once))
        numbers = {
            "depth": rate.depth,
            "interval": rate.interval,
            "ahead": self._ahead,
            "least": least,
            "most": most,
        }
        self._slots = NO_SLOTS
        taken = self._run(sql.TAKE, numbers)
        before = time.monotonic()
        rows = self._run(sql.BUCKET)
        after = time.monotonic()
        if not rows:
            return 0
        distance, number = rows[0]
        if not taken:
            self._hold(rate, distance, least)
            return 0
        first = (distance - number * rate.interval) / MICROSECONDS
        self._slots = Slots(
            number,
            after + first,
            before + first + rate.late / MICROSECONDS,
            rate.interval / MICROSECONDS,
        )
        return int(number)

    def _look(self, rate: Rate) -> None:
        rows = self._run(sql.BUCKET)
        if not rows:
            self._run(sql.ADD_BUCKET)
        elif rows[0][0] > rate.interval + 2 * self._ahead:
            self._run(sql.BRING_FORWARD, {"interval": rate.interval, "ahead": self._ahead})
            self._hold(rate, rate.interval, 1)
        else:
            self._hold(rate, rows[0][0], 1)

    def _hold(self, rate: Rate, distance: int, least: int) -> None:
        """Note when ``least`` slots are free, given how far away the next one is.

        Those who wait for it do not all come at once: each of them would ask.
        """
        first = max(distance, -rate.depth)
        left = (first + (least - 1) * rate.interval - self._ahead) / MICROSECONDS
        if left > 0:
            spread = random.uniform(0, self.ahead)  # noqa: S311 - nothing secret
            self.held_until = time.monotonic() + left + spread

    @property
    def _ahead(self) -> int:
        return int(self.ahead * MICROSECONDS)

    def _run(self, statement: dict[str, str], numbers: dict[str, int] | None = None) -> Any:
        """Run a statement; return its rows, or how many it has changed."""
        connection = connections[self._using]
        with connection.cursor() as cursor:
            place = {"group": self._group.pk, **(numbers or {})}
            cursor.execute(statement[connection.vendor], place)
            return list(cursor.fetchall()) if cursor.description else cursor.rowcount
