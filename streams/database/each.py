"""Asks databases in threads of their own, and waits for none that hangs.

One may hang for minutes, as when its host has lost its power.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from django.db import Error, OperationalError, connections

T = TypeVar("T")

# In seconds: how long a caller waits for the databases, all in all.
WAITED = 1.0
# In seconds: after this time nobody remembers what a database has said, and one that still hangs is
# asked again: its connection may be dead, which a client notices after hours.
FORGOTTEN = 60.0


class ReplyState(Enum):
    WHOLE = auto()
    ASKED = auto()  # it is still being asked
    AWAY = auto()


@dataclass(frozen=True)
class Reply(Generic[T]):
    """What one database has said so far; ``error`` is why it is away."""

    alias: str
    said: tuple[T, ...] = ()
    state: ReplyState = ReplyState.WHOLE
    error: Error | None = field(default=None, compare=False)

    def whole(self) -> tuple[T, ...]:
        """Return all that the database says; raises the Error of one that has not said it."""
        if self.state is not ReplyState.WHOLE:
            raise self.error or OperationalError(2013, f"{self.alias} does not answer")
        return self.said


@dataclass
class _Question:
    """What a thread asks one database; its state is written last."""

    thread: Thread
    began: float
    state: ReplyState
    said: list[Any] = field(default_factory=list)
    error: Exception | None = None
    ended: float = 0.0

    def holds(self, kept: float, now: float) -> bool:
        """Tell whether who asks the same at ``now`` gets this answer."""
        if self.thread.is_alive():
            return self.began + FORGOTTEN > now
        return self.ended + kept > now

    def reply(self, alias: str) -> Reply[Any]:
        state = self.state  # first: what comes after it is too late
        if self.error is not None and not isinstance(self.error, Error):
            raise self.error
        return Reply(alias, tuple(self.said), state, self.error)


# The last question of each kind to each database.
_questions: dict[tuple[Hashable, str], _Question] = {}
_lock = Lock()


def ask_each(
    kind: Hashable,
    aliases: Iterable[str],
    ask: Callable[[str], Iterable[T]],
    *,
    kept: float = 0.0,
    waited: float | None = None,
) -> list[Reply[T]]:
    """Return what ``ask(alias)`` yields of each database within ``waited`` seconds (WAITED).

    An answer is shared by all that ask the same ``kind`` while it is asked, and for ``kept``
    seconds. Raises what ``ask`` raises, but for the Error of a database.
    """
    asked = [(alias, _begin(kind, alias, ask, kept)) for alias in aliases]
    seconds = WAITED if waited is None else waited
    for _alias, one in asked:
        one.thread.join(max(0.0, one.began + seconds - time.monotonic()))
    return [one.reply(alias) for alias, one in asked]


def _begin(kind: Hashable, alias: str, ask: Callable[[str], Iterable[T]], kept: float) -> _Question:
    key, now = (kind, alias), time.monotonic()
    with _lock:
        for old, one in list(_questions.items()):
            if not one.thread.is_alive() and one.ended + FORGOTTEN < now:
                del _questions[old]
        last = _questions.get(key)
        if last and last.holds(kept, now):
            return last
        # One that was away is away until it answers, also if each question hangs for a while.
        is_away = last is not None and last.state is ReplyState.AWAY
        thread = Thread(target=lambda: _run(new, alias, ask), name=f"ems-ask-{alias}", daemon=True)
        new = _Question(thread, now, ReplyState.AWAY if is_away else ReplyState.ASKED)
        thread.start()
        _questions[key] = new
    return new


def _run(question: _Question, alias: str, ask: Callable[[str], Iterable[T]]) -> None:
    state = ReplyState.AWAY
    try:
        for said in ask(alias):
            question.said.append(said)
        state = ReplyState.WHOLE
    except Exception as error:  # noqa: BLE001 - who waits for it raises it
        question.error = error
    finally:
        question.ended = time.monotonic()
        question.state = state
        connections.close_all()


def _forget() -> None:
    """Forget the threads in a child process: a fork has only the one that called it."""
    global _lock
    _questions.clear()
    _lock = Lock()


os.register_at_fork(after_in_child=_forget)
