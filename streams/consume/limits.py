"""Finds the limits of a group: admin override > command line > decorator > SystemConfig."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Any

from streams import runtime_settings
from streams.conf import MAX_ANY_ORDER, MAX_BATCH
from streams.consume.outcome.backoff import (
    RetryPolicy,
    default_policy,
    delay_after,
    parse_retry_policy,
)
from streams.consume.outcome.failure import ProcessDied
from streams.consume.rate import Rate
from streams.consume.registry import Registration, find
from streams.errors import InvalidRate, InvalidRetryPolicy
from streams.logs import event
from streams.models import ConsumerGroup, Mode
from streams.models.group import UNLIMITED

logger = logging.getLogger("streams.retries")


@dataclass(frozen=True)
class Overrides:
    """What the command line says; None leaves a value to the decorator."""

    threads: int | None = None  # of the process
    batch: int | None = None
    claim_seconds: float | None = None
    start: str | datetime | None = None  # of groups that are new


@dataclass(frozen=True)
class Share:
    """Which of the ``of`` groups of a process are on one database: ``groups``, after others.

    The threads of the process are for all its groups, and each database has some of its own.
    """

    before: int
    groups: int
    of: int

    @property
    def whole(self) -> bool:
        """Whether all groups of the process are on this database."""
        return self.groups == self.of

    def threads(self, total: int) -> int:
        """Return how many of ``total`` threads are for this database, at least one.

        All shares together are ``total``, unless there are more databases than threads.
        """
        begin, end = (
            (total * groups + self.of // 2) // self.of
            for groups in (self.before, self.before + self.groups)
        )
        return max(1, end - begin)


def shares(groups: Mapping[str, Sized]) -> dict[str, Share]:
    """Return the share of each alias, given the groups on each."""
    of, before = sum(map(len, groups.values())), 0
    found: dict[str, Share] = {}
    for alias, some in groups.items():
        found[alias] = Share(before, len(some), of)
        before += len(some)
    return found


@dataclass(frozen=True)
class Limits:
    """The limits in force for a group: ``batch`` in messages, ``max_retries`` in attempts.

    ``claim_seconds``: how long the handler calls of one claim may take; 0: a claim is one batch.
    ``workers``: the worker threads of the group in all live processes, where they are counted.
    ``rate``: how many messages of the group begin in a second; None: as many as can.
    """

    batch: int
    max_retries: int
    consume_timeout: timedelta
    retry: RetryPolicy = field(default_factory=default_policy)
    claim_seconds: float = 0.0
    workers: int = 1
    rate: Rate | None = None

    @cached_property
    def one_call(self) -> bool:
        """Tell whether a death in the first attempt is the end: a claim is one call then.

        Its start is written before it, so that nothing is buried whose handler was not called.
        """
        return not self.max_retries or delay_after(self.retry, 1, ProcessDied()) is None

    def claimed_at_once(self, registration: Registration) -> int:
        """Return the messages of the smallest claim: of a call, or of ``batch`` calls of one.

        With lanes each of these has a batch, up to what can be settled in any order. If a death in
        the call would end it, it is one message where the rate of each key may hold others back.
        """
        if self.one_call and (registration.batch is None or (self.rate and registration.rate_key)):
            return 1
        if registration.lanes > 1:
            return min(MAX_ANY_ORDER, self.batch * registration.lanes)
        return self.batch


def limits(
    group: ConsumerGroup,
    registration: Registration | None,
    using: str,
    overrides: Overrides = Overrides(),
) -> Limits:
    decorated = registration.batch if registration else None
    policy = _own_policy(group, registration)
    rate = rate_of(group, registration)
    by_key = registration is not None and registration.rate_key is not None
    return Limits(
        batch=min(
            # One call of a batch handler begins all its messages. By key, some of them may wait.
            rate.at_once if rate and decorated and not by_key else MAX_BATCH,
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
        # A policy is any object, so also one that is false.
        retry=default_policy() if policy is None else policy,
        claim_seconds=_first(
            overrides.claim_seconds, runtime_settings.system("consumerClaimSeconds", using)
        ),
        rate=rate,
    )


def rate_of(group: ConsumerGroup, registration: Registration | None) -> Rate | None:
    """Return the rate in force; None: there is none."""
    if group.rate == UNLIMITED:
        return None
    if group.rate:
        try:
            return Rate.of(group.rate)
        except InvalidRate as error:  # the admin refuses it: it was written past it
            _say_rate_once(group, str(error))
    return registration.rate if registration else None


def _own_policy(group: ConsumerGroup, registration: Registration | None) -> RetryPolicy | None:
    if group.retry_policy:
        try:
            return parse_retry_policy(group.retry_policy)
        except InvalidRetryPolicy as error:  # the admin refuses it: it was written past it
            _say_once(group, str(error))
    return registration.retry if registration else None


@cache
def _say_once(group: ConsumerGroup, error: str) -> None:
    logger.error(
        "The retry policy of %s is ignored: %s",
        *(group, error),
        extra=event("retry_policy.ignored", topic=group.topic.name, group=group.name),
    )


@cache
def _say_rate_once(group: ConsumerGroup, error: str) -> None:
    logger.error(
        "The rate that was set for %s is ignored: %s",
        *(group, error),
        extra=event("rate.ignored", topic=group.topic.name, group=group.name),
    )


def delay_after_expiry(group: ConsumerGroup, attempt: int) -> timedelta | None:
    """Return how long a message waits whose process died in its attempt ``attempt``.

    That is a step of ``EMS["RETRY_DELAYS"]``, unless the group has a policy of its own. The ladder
    begins after the second death: after the first one the message does not wait (see expire). None:
    the policy gives up.
    """
    policy = _own_policy(group, find(group.topic.name, group.name))
    if policy is None:
        policy, attempt = default_policy(), max(1, attempt - 1)
    return delay_after(policy, attempt, ProcessDied())


def threads(registration: Registration, using: str, overrides: Overrides = Overrides()) -> int:
    """Return how many threads of a process may handle messages of the group at once.

    ``overrides`` count for the only group of a process: to others its threads belong, too.
    """
    if registration.mode == Mode.BROADCAST:
        return 1  # a second thread would break the order of a partition
    return int(
        _first(
            registration.threads,
            overrides.threads,
            runtime_settings.system("consumerThreads", using),
        )
    )


def pool_size(
    of_groups: Iterable[int],
    using: str,
    overrides: Overrides = Overrides(),
    share: Share | None = None,
) -> int:
    """Return how many worker threads a process has for the groups on ``using``.

    They are no more than these groups may have together. Without a ``share`` they have all.
    """
    total = _first(overrides.threads, runtime_settings.system("processThreads", using))
    most = share.threads(int(total)) if share else int(total)
    return min(most, sum(of_groups))


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
