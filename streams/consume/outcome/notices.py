"""Notifies the project of outcomes, each by one log record and one signal.

Call it after the commit of the outcome, since a receiver is the project's own code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from traceback import clear_frames
from typing import Any

from streams import signals
from streams.consume.outcome.flood import flood
from streams.consume.outcome.settle import Settlement
from streams.errors import Reject, Retry, describe, text_of
from streams.logs import event
from streams.models import ConsumerGroup, Delivery

logger = logging.getLogger("streams.handling")
broadcast = logging.getLogger("streams.broadcast")


@dataclass(frozen=True)
class Attempt:
    """The name of one attempt at one message."""

    topic: str
    partition: int
    offset: int
    group: str
    attempt: int

    @classmethod
    def of(cls, delivery: Delivery, offset: int, topic: str) -> Attempt:
        group = delivery.group
        return cls(topic, delivery.partition.number, offset, group.name, delivery.attempt)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


def settled(
    delivery: Delivery, settlement: Settlement, gone: Sequence[int], topic: str, name: str
) -> None:
    """Tell what the handler ``name`` has failed on, and that ``gone`` and others are missing."""
    for one in settlement.judged:
        error = one.failure.error
        tried = Attempt.of(delivery, one.failure.offset, topic)
        if one in settlement.dead:
            died(tried, error, name, delivery.using)
        elif one.again and not one.postponed:
            failed(tried, error, one.again.delay, name, delivery.using)
        # The frames of its traceback have the message, and what the handler made of it.
        clear_frames(error.__traceback__)
    if offsets := sorted([*gone, *settlement.gone]):
        missing(Attempt.of(delivery, offsets[0], topic), offsets, delivery.using)


def failed(
    tried: Attempt, error: BaseException, retry_in: timedelta, name: str, using: str
) -> None:
    """Tell that the handler ``name`` failed, and that the message comes back in ``retry_in``."""
    if flood.admits(tried.topic, tried.group):
        asked = isinstance(error, Retry)
        logger.warning(
            "%s %s %s, attempt %d: %s; next attempt %s",
            *(name, "asks to retry" if asked else "failed on", tried, tried.attempt),
            *(_reason(error), _when(retry_in)),
            exc_info=None if asked else error,
            extra=event("handler.failed", **_keys(tried, error), retry_in=retry_in.total_seconds()),
        )
    _send(signals.message_failed, **asdict(tried), error=error, retry_in=retry_in, using=using)


def passed(tried: Attempt, error: BaseException, name: str, using: str) -> None:
    """Tell that the handler ``name`` of a broadcast group failed: the group goes on."""
    if flood.admits(tried.topic, tried.group):
        broadcast.error(
            "%s failed on %s, and goes on: %s",
            *(name, tried, describe(error)),
            exc_info=None if isinstance(error, Retry | Reject) else error,
            extra=event("broadcast.failed", **_keys(tried, error)),
        )
    _send(signals.message_failed, **asdict(tried), error=error, retry_in=None, using=using)


def died(tried: Attempt, error: BaseException, name: str, using: str) -> None:
    """Tell that the group gave up on the message, whose dead letter is written."""
    if flood.admits(tried.topic, tried.group, dead=True):
        rejected = isinstance(error, Reject)
        logger.error(
            "%s %s %s after attempt %d: %s; it is a dead letter now",
            *(name, "rejected" if rejected else "gave up on", tried, tried.attempt),
            _reason(error),
            exc_info=None if isinstance(error, Retry | Reject) else error,
            extra=event("message.dead", **_keys(tried, error)),
        )
    _send(signals.message_dead, **asdict(tried), error=error, using=using)


def missing(tried: Attempt, offsets: Sequence[int], using: str) -> None:
    """Tell that these messages, of which ``tried`` is the first, are gone: nobody handled them."""
    place = {"topic": tried.topic, "partition": tried.partition, "group": tried.group}
    logger.error(
        "%s: %d messages of %s/%d are gone, the first at offset %d",
        *(tried.group, len(offsets), tried.topic, tried.partition, tried.offset),
        extra=event("message.missing", **place, offset=tried.offset, count=len(offsets)),
    )
    _send(signals.message_missing, **place, offsets=tuple(offsets), using=using)


def expired(delivery: Delivery, settlement: Settlement) -> None:
    """Tell that the delivery was taken from its client, and what it gives up on by that."""
    topic, group = delivery.group.topic.name, delivery.group.name
    tried = asdict(Attempt.of(delivery, delivery.progress, topic))
    tried["first_offset"] = tried.pop("offset")
    tried |= {"last_offset": delivery.last_offset, "client_id": delivery.client_id}
    _send(signals.delivery_expired, **tried, using=delivery.using)
    for one in settlement.dead:
        dead = Attempt.of(delivery, one.failure.offset, topic)
        died(dead, one.failure.error, group, delivery.using)


def _keys(tried: Attempt, error: BaseException) -> dict[str, Any]:
    return {**asdict(tried), "error": type(error).__name__, **getattr(error, "ems_span", {})}


def _reason(error: BaseException) -> str:
    """Return what to write of an error: the reason alone where the handler asked for it."""
    if isinstance(error, Retry | Reject):
        return " ".join(text_of(error).split()) or "no reason given"
    return describe(error)


def _when(delay: timedelta) -> str:
    seconds = round(delay.total_seconds())
    if seconds < 1:
        return "now"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"in {round(seconds / size)} {unit}"
    return f"in {seconds} s"


def _send(signal: Any, **values: Any) -> None:
    signal.send_robust(sender=ConsumerGroup, **values)
