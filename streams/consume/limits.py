"""Finds the limits of a group: admin override > command line > decorator > SystemConfig."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streams import runtime_settings
from streams.conf import MAX_BATCH
from streams.consume.registry import Registration, find
from streams.models import ConsumerGroup, Mode


@dataclass(frozen=True)
class Overrides:
    """Holds what the command line says; None leaves a value to the decorator."""

    threads: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Limits:
    """Holds the limits in force for a group: ``batch`` in messages, ``max_retries`` in attempts."""

    batch: int
    max_retries: int
    consume_timeout: timedelta


def limits(
    group: ConsumerGroup,
    registration: Registration | None,
    using: str,
    overrides: Overrides = Overrides(),
) -> Limits:
    decorated = registration.batch if registration else None
    return Limits(
        batch=min(
            MAX_BATCH,
            _first(
                group.batch,
                overrides.batch,
                decorated,
                runtime_settings.system("consumerBatchSize", using),
            ),
        ),
        max_retries=_first(
            group.max_retries,
            registration and registration.max_retries,
            runtime_settings.system("consumerRetryMaxTimes", using),
        ),
        consume_timeout=timedelta(
            seconds=_first(
                group.consume_timeout,
                registration and registration.consume_timeout,
                runtime_settings.system("consumeTimeoutSeconds", using),
            )
        ),
    )


def threads(registration: Registration, using: str, overrides: Overrides) -> int:
    if registration.mode == Mode.BROADCAST:
        return 1  # a second thread would break the order of a partition
    return int(
        _first(
            overrides.threads,
            registration.threads,
            runtime_settings.system("consumerThreads", using),
        )
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def known_max_retries(group: ConsumerGroup, using: str) -> int | None:
    """Return max_retries of ``group``, or None if this process cannot tell.

    If the group's consumer is in other projects only, this process knows the admin override at
    most. With None, the process that claims the message next decides whether an attempt is left.
    """
    registration = find(group.topic.name, group.name)
    if registration is None:
        return group.max_retries
    return limits(group, registration, using).max_retries
