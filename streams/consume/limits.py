"""The limits in force for a group: admin override > command line > decorator > SystemConfig."""

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
    """What the command line says; None leaves it to the decorator."""

    threads: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Limits:
    """What is in force for a group: admin override > command line > decorator > SystemConfig."""

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
        return 1  # who reads all of a partition in order can only be one
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
    """How many retries the group has, if this process can tell: its consumer may be elsewhere.

    None leaves the judgement to who claims the message next.
    """
    registration = find(group.topic.name, group.name)
    if registration is None:
        return group.max_retries
    return limits(group, registration, using).max_retries
