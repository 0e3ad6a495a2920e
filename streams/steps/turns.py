"""Tells whether it is the turn of this process to run a step, and seldom asks the database."""

from __future__ import annotations

import time
from datetime import timedelta

from streams.database.remembered import Forgettable
from streams.database.retrying import retrying
from streams.models import Step

# By alias and step: before this time, of the monotonic clock, the step is not asked for.
_ask_at: Forgettable[tuple[str, str], float] = Forgettable()


def is_turn(name: str, every: timedelta, using: str) -> bool:
    """Win the step, unless this process has, in the last ``every``, or any other process.

    A process that has not won asks again after half of ``every``: an idle consumer costs little.
    """
    if not may_ask(name, using):
        return False
    won = bool(retrying(Step.objects.using(using).win, using, name, every))
    rest(name, using, every if won else every / 2)
    return won


def may_ask(name: str, using: str) -> bool:
    """Tell whether this process has not said that the step rests."""
    return time.monotonic() >= _ask_at.get((using, name), 0.0)


def rest(name: str, using: str, duration: timedelta) -> None:
    """Do not ask for the step for ``duration``: it is not due before."""
    _ask_at[using, name] = time.monotonic() + duration.total_seconds()
