"""Asks several databases at once how they are, and waits for none that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

from django.db import Error, connections
from django.utils import translation

from streams.admin.alarm import Said
from streams.admin.parts.figures import BAD, GOOD

# In seconds: how long a page waits for the databases, all in all.
WAITED = 1.0


@dataclass(frozen=True)
class Seen:
    """Holds what one database has said; ``alarm`` is None if it has not answered."""

    alias: str
    alarm: Said | None

    @property
    def level(self) -> str:
        return GOOD if self.alarm and not self.alarm.text else BAD


# The threads that ask each database, with their starts. One that hangs, as when a host has lost
# its power, may hang for minutes: until all that are late have ended, no page asks that database.
_asking: dict[str, list[tuple[Thread, float]]] = {}
_lock = Lock()


def look(aliases: Iterable[str], ask: Callable[[str], Said]) -> list[Seen]:
    """Return what ``ask(alias)`` says of each database, asked in threads of their own."""
    found: dict[str, Said] = {}
    started = time.monotonic()
    names = list(aliases)
    threads = [thread for name in names if (thread := _begin(name, ask, found, started))]
    for thread in threads:
        thread.join(max(0.0, started + WAITED - time.monotonic()))
    said = dict(found)  # what comes later is too late
    return [Seen(name, said.get(name)) for name in names]


def _begin(
    alias: str, ask: Callable[[str], Said], found: dict[str, Said], now: float
) -> Thread | None:
    language = translation.get_language()
    thread = Thread(target=_ask, args=(alias, ask, found, language), daemon=True)
    with _lock:
        running = [one for one in _asking.get(alias, []) if one[0].is_alive()]
        # No answer is shared: it is for the rights of its user, and in the language of its page.
        if any(now - since > WAITED for _thread, since in running):
            return None
        thread.start()
        _asking[alias] = [*running, (thread, now)]
    return thread


def _ask(alias: str, ask: Callable[[str], Said], found: dict[str, Said], language: Any) -> None:
    try:
        with translation.override(language):
            found[alias] = ask(alias)
    except Error:
        pass  # it is away
    finally:
        connections.close_all()
