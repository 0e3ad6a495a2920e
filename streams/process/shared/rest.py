"""Lets a group rest in this process while what its handlers need is away, such as a broker."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from streams.consume.outcome.failure import ResourceAway
from streams.consume.registry import Registration
from streams.database.retrying import retrying
from streams.errors import text_of
from streams.logs import event
from streams.models import Consumer, ConsumerGroup

logger = logging.getLogger("streams.handling")

# In seconds; each try that fails doubles the rest, up to the longest one.
FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0


class Rest:
    """The rest of one group: no thread claims for it, and its row says since when and why.

    After a rest the threads try again. Other processes find out by themselves: the broker may be
    away from one host only.
    """

    def __init__(self, group: ConsumerGroup, registration: Registration, using: str) -> None:
        self._group, self._using = group.pk, using
        self._names = {"topic": registration.topic, "group": registration.group}
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._until = 0.0  # of the monotonic clock

    @property
    def lasts(self) -> bool:
        return bool(self._until) and time.monotonic() < self._until

    def begin(self, away: ResourceAway, client_id: str, tried_at: float) -> None:
        """Rest, after a call that was tried at ``tried_at`` of the monotonic clock.

        What was tried before the last rest ended says nothing new: several threads fail at once.
        """
        with self._lock:
            if tried_at < self._until:
                return
            doubled = min(2 * self._seconds, LONGEST_REST_SECONDS)
            self._seconds = doubled or FIRST_REST_SECONDS
            self._until = time.monotonic() + self._seconds
            reason = " ".join(text_of(away).split())
            logger.warning(
                "%s on %s waits: %s; next try in %d s",
                *(self._names["group"], self._names["topic"], reason, self._seconds),
                extra=event("group.waits", **self._names, retry_in=self._seconds),
            )
            self._write("note_away", client_id, reason)

    def end(self, client_id: str) -> None:
        """Note that a call has succeeded. It costs nothing unless the group has rested."""
        if not self._seconds:
            return
        with self._lock:
            if self._seconds:
                self._seconds = self._until = 0.0
                names = self._names
                logger.info(
                    "%s on %s goes on",
                    names["group"],
                    names["topic"],
                    extra=event("group.goes_on", **names),
                )
                self._write("note_back", client_id)

    def _write(self, verb: str, client_id: str, *args: Any) -> None:
        # Under the lock: the row says what was noted last.
        mine = Consumer.objects.using(self._using).filter(client_id=client_id, group=self._group)
        retrying(getattr(mine, verb), self._using, *args)
