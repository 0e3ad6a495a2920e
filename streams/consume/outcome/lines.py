"""Writes a line of the log for each message that a handler was called with."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from streams.api import ReceivedMessage
from streams.consume.registry import Registration
from streams.logs import event

logger = logging.getLogger("streams.messages")

DONE = "done"


class Lines:
    """The calls for one stretch of the log, whose lines are written when they are settled."""

    def __init__(self) -> None:
        # By offset: the message, the seconds of its call, and how many messages the call had.
        self._calls: dict[int, tuple[ReceivedMessage, float, int]] = {}

    @classmethod
    def wanted(cls) -> Lines | None:
        """Return a new one if anybody reads the lines, or None: then a message costs nothing."""
        return cls() if logger.isEnabledFor(logging.DEBUG) else None

    def note(self, argument: ReceivedMessage | Sequence[ReceivedMessage], seconds: float) -> None:
        """Note a call with ``argument``, which took ``seconds``."""
        messages = [argument] if isinstance(argument, ReceivedMessage) else argument
        for message in messages:
            self._calls[message.offset] = (message, seconds, len(messages))

    def write(self, span: range, outcomes: Mapping[int, str], registration: Registration) -> None:
        """Write the lines of the offsets in ``span``; what is not in ``outcomes`` is done."""
        for offset in span:
            if offset not in self._calls:
                continue  # without a tag that the group wants, or without a body
            message, seconds, size = self._calls.pop(offset)
            outcome = outcomes.get(offset, DONE)
            logger.debug(
                "%s %s/%d@%d key %s, attempt %d: %s in %.1f ms%s",
                *(registration.group, message.topic, message.partition, offset),
                *("–" if message.key is None else repr(message.key), message.attempt),
                *(outcome, 1000 * seconds, f" (a call of {size})" if size > 1 else ""),
                extra=event(
                    "message.handled",
                    topic=message.topic,
                    group=registration.group,
                    partition=message.partition,
                    offset=offset,
                    attempt=message.attempt,
                    seconds=round(seconds, 6),
                    outcome=outcome,
                ),
            )
