"""Wakes consumers through Redis, which makes EMS faster. No guarantee depends on it.

A producer's background thread publishes to Redis after a commit; consumers listen and look at once
instead of at their next poll. A message whose wake-up is lost is found by polling.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Set
from typing import Any

from django.db import Error, connections

from streams.conf import settings
from streams.database.remembered import Forgettable
from streams.logs import event
from streams.runtime_settings import system
from streams.telemetry import count

logger = logging.getLogger("streams.wakeup")

# At most one publication in this many seconds, however many messages are sent.
COALESCE_SECONDS = 0.002
RECONNECT_SECONDS = 1.0
LISTEN_SECONDS = 1.0
LAST_WORD_SECONDS = 0.2
# Stands for all topics.
EVERY: frozenset[str] = frozenset()


# By alias: the channel, which a process reads once.
_channels: Forgettable[str, str] = Forgettable()


def channel(using: str) -> str:
    """Return the Redis channel of the streams on ``using``, of this namespace.

    It has the installationId, because two servers may have databases of one name.
    """
    if using not in _channels:
        database = connections[using].settings_dict["NAME"]
        known = f"{database}:{system('installationId', using)}:{settings().NAMESPACE}"
        _channels[using] = f"ems:wake:{known}"
    return _channels[using]


def _redis() -> Any:
    from django_redis import get_redis_connection

    return get_redis_connection(settings().REDIS)


class Announcer:
    """A thread that publishes the wake-ups of a producer process. ``announce`` never waits."""

    def __init__(self) -> None:
        # By channel: the topics that have messages, or EVERY.
        self._pending: dict[str, frozenset[str]] = {}
        self._telling: dict[str, frozenset[str]] = {}
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None

    def announce(self, channel: str, topics: frozenset[str] = EVERY) -> None:
        with self._condition:
            before = self._pending.get(channel, topics)
            self._pending[channel] = before | topics if before and topics else EVERY
            self._condition.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ems-wakeup", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Wait at most LAST_WORD_SECONDS until all is published, when the process ends."""
        limit = time.monotonic() + LAST_WORD_SECONDS
        while (self._pending or self._telling) and time.monotonic() < limit:
            time.sleep(COALESCE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending)
                # Taken before they are published: what is announced meanwhile is published again.
                self._telling, self._pending = self._pending, {}
            try:
                for name, topics in self._telling.items():
                    _redis().publish(name, json.dumps(sorted(topics)))
                pause = COALESCE_SECONDS
            except Exception as error:  # noqa: BLE001 - no error of Redis may stop a producer
                logger.warning(
                    "Redis is unavailable (%s): consumers poll",
                    error,
                    extra=event("wakeup.not_sent", error=type(error).__name__),
                )
                pause = RECONNECT_SECONDS
            self._telling = {}
            time.sleep(pause)


_announcer = Announcer()


def _forget_threads() -> None:
    """Make a new announcer in a forked process, which does not have the thread."""
    global _announcer
    _announcer = Announcer()


os.register_at_fork(after_in_child=_forget_threads)
atexit.register(lambda: _announcer.flush())


def announce(using: str, topics: Iterable[str] = EVERY) -> None:
    """Wake the consumers of ``topics``, because there is something to claim; by default all.

    It never raises and never waits.
    """
    if settings().REDIS is not None:
        try:
            name = channel(using)
        except Error as error:  # only the first call of a process asks the database
            logger.warning(
                "No wake-up, the database is unavailable: %s",
                error,
                extra=event("wakeup.not_sent", error=type(error).__name__),
            )
        else:
            _announcer.announce(name, frozenset(topics))


class Listener:
    """Waits, in a thread of a consumer process, for wake-ups of the topics that it consumes.

    ``topics`` may change while it listens. ``wake`` is called with those that have messages; EVERY
    stands for all.
    """

    def __init__(self, using: str, topics: Set[str], wake: Callable[[Set[str]], None]) -> None:
        # It reads the database, in the thread that has a connection.
        self._channel = channel(using) if settings().REDIS is not None else ""
        self._topics = topics
        self._wake = wake
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ems-listener", daemon=True)

    def start(self) -> None:
        if settings().REDIS is not None:
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with _redis().pubsub(ignore_subscribe_messages=True) as pubsub:
                    pubsub.subscribe(self._channel)
                    self._wake(EVERY)  # for what was announced before this process listened
                    self._listen(pubsub)
            except Exception as error:  # noqa: BLE001 - no error of Redis may stop a consumer
                logger.warning(
                    "Redis is unavailable (%s): polling",
                    error,
                    extra=event("wakeup.away", error=type(error).__name__),
                )
                self._ended.wait(RECONNECT_SECONDS)

    def _listen(self, pubsub: Any) -> None:
        while not self._ended.is_set():
            message = pubsub.get_message(timeout=LISTEN_SECONDS)
            if message is not None and (topics := self._concerned(message["data"])) is not None:
                count("ems_wakeups_total")
                self._wake(topics)

    def _concerned(self, data: bytes) -> Set[str] | None:
        """Return those of its topics that have messages, EVERY for all; None if it has none."""
        topics = frozenset(json.loads(data))
        return topics & self._topics or None if topics else EVERY
