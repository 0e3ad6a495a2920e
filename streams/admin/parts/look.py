"""Asks several databases at once how they are, and waits for none that does not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Lock, Thread

from django.db import Error, connections
from django.utils import translation
from django.utils.translation import gettext as _

from streams.admin.alarm import Said
from streams.admin.parts.figures import BAD, GOOD, WARNING
from streams.logs import event

logger = logging.getLogger("streams.admin")

# In seconds: how long a page waits for the databases, all in all.
WAITED = 1.0
# In seconds: after this time nobody remembers what a database has said.
FORGOTTEN = 60.0

Ask = Callable[[str], Iterable[Said]]


class Answer(Enum):
    WHOLE = auto()
    ASKED = auto()  # it is still being asked
    AWAY = auto()


@dataclass(frozen=True)
class Seen:
    """Holds what one database has said so far."""

    alias: str
    said: Sequence[Said] = ()
    answer: Answer = Answer.WHOLE

    @property
    def level(self) -> str:
        if self.answer is Answer.WHOLE:
            return BAD if any(one.text for one in self.said) else GOOD
        return WARNING if self.answer is Answer.ASKED else BAD


@dataclass
class _Asked:
    """Holds what a thread asks one database; its answer is written last."""

    thread: Thread
    began: float
    answer: Answer
    said: list[Said] = field(default_factory=list)
    ended: float = 0.0


# The last ask of each kind, in each language, of each database. One that hangs, as when a host has
# lost its power, may hang for minutes: until it has ended, no page asks that again.
_asked: dict[tuple[Hashable, str | None, str], _Asked] = {}
_lock = Lock()


def look(kind: Hashable, aliases: Iterable[str], ask: Ask, kept: float = 0.0) -> list[Seen]:
    """Return what ``ask(alias)`` yields of each database, asked in threads of their own.

    An answer is shared by all that ask the same ``kind`` while it is asked, and for ``kept``
    seconds: what depends on the rights of a user names these rights in its kind.
    """
    asked = [(alias, _begin(kind, alias, ask, kept)) for alias in aliases]
    for _alias, one in asked:
        one.thread.join(max(0.0, one.began + WAITED - time.monotonic()))
    # The answer is read first: what comes after it is too late.
    return [Seen(alias, answer=one.answer, said=tuple(one.said)) for alias, one in asked]


def _begin(kind: Hashable, alias: str, ask: Ask, kept: float) -> _Asked:
    language = translation.get_language()
    key, now = (kind, language, alias), time.monotonic()
    with _lock:
        for old, one in list(_asked.items()):
            if not one.thread.is_alive() and one.ended + FORGOTTEN < now:
                del _asked[old]
        last = _asked.get(key)
        if last and (last.thread.is_alive() or last.ended + kept > now):
            return last
        # One that was away is away until it answers, also if each ask of it hangs for a while.
        answer = Answer.AWAY if last and last.answer is Answer.AWAY else Answer.ASKED
        thread = Thread(target=lambda: _run(asked, alias, ask, language), daemon=True)
        asked = _Asked(thread, now, answer)
        thread.start()
        _asked[key] = asked
    return asked


def _run(asked: _Asked, alias: str, ask: Ask, language: str | None) -> None:
    answer = Answer.WHOLE
    try:
        with translation.override(language):
            try:
                for said in ask(alias):
                    asked.said.append(said)
            except Error:
                answer = Answer.AWAY
            except Exception as error:
                name = type(error).__name__
                logger.exception(
                    "The database %s could not be asked",
                    alias,
                    extra=event("admin.not_asked", database=alias, error=name),
                )
                text = _("The database %s could not be asked: see the log.")
                asked.said.append(Said(text % alias, state=_("failed")))
    finally:
        asked.ended = time.monotonic()
        asked.answer = answer
        connections.close_all()
