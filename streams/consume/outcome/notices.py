"""Notifies the project of outcomes, each by one log record and one signal.

Call it after the commit of the outcome, since a receiver is the project's own code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from streams import signals
from streams.errors import describe
from streams.models import ConsumerGroup, Delivery

logger = logging.getLogger("streams.handling")
broadcast = logging.getLogger("streams.broadcast")


@dataclass(frozen=True)
class Attempt:
    """Names one attempt at one message."""

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


def failed(
    tried: Attempt, error: BaseException, retry_in: timedelta, name: str, using: str
) -> None:
    """Tell that the handler ``name`` failed, and that the message comes back in ``retry_in``."""
    logger.warning(
        "%s failed on %s, attempt %d: %s",
        *(name, tried, tried.attempt, describe(error)),
        exc_info=error,
        extra=_keys(tried, error),
    )
    _send(signals.message_failed, **asdict(tried), error=error, retry_in=retry_in, using=using)


def passed(tried: Attempt, error: BaseException, name: str, using: str) -> None:
    """Tell that the handler ``name`` of a broadcast group failed: the group goes on."""
    broadcast.error(
        "%s failed on %s, and goes on: %s",
        *(name, tried, describe(error)),
        exc_info=error,
        extra=_keys(tried, error),
    )
    _send(signals.message_failed, **asdict(tried), error=error, retry_in=None, using=using)


def died(tried: Attempt, error: BaseException, name: str, using: str) -> None:
    """Tell that the group gave up on the message, whose dead letter is written."""
    logger.error(
        "%s gave up on %s after attempt %d: %s",
        *(name, tried, tried.attempt, describe(error)),
        exc_info=error,
        extra=_keys(tried, error),
    )
    _send(signals.message_dead, **asdict(tried), error=error, using=using)


def missing(delivery: Delivery, offsets: Sequence[int], topic: str) -> None:
    """Tell that these messages of the delivery are gone, so that nobody has handled them."""
    tried = Attempt.of(delivery, offsets[0], topic)
    place = {"topic": tried.topic, "partition": tried.partition, "group": tried.group}
    logger.error(
        "%s: %d messages of %s/%d are gone, the first at offset %d",
        *(tried.group, len(offsets), tried.topic, tried.partition, tried.offset),
        extra=place,
    )
    _send(signals.message_missing, **place, offsets=tuple(offsets), using=delivery.using)


def expired(delivery: Delivery) -> None:
    """Tell that the lease of the delivery has ended before it was settled."""
    tried = asdict(Attempt.of(delivery, delivery.progress, delivery.group.topic.name))
    tried["first_offset"] = tried.pop("offset")
    tried |= {"last_offset": delivery.last_offset, "client_id": delivery.client_id}
    _send(signals.delivery_expired, **tried, using=delivery.using)


def _keys(tried: Attempt, error: BaseException) -> dict[str, Any]:
    return {**asdict(tried), "error_class": type(error).__name__}


def _send(signal: Any, **values: Any) -> None:
    signal.send_robust(sender=ConsumerGroup, **values)
