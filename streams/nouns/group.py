"""Describes a consumer group: how it stands, and where it is in each partition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from streams.nouns.client import GroupClient
from streams.nouns.delivery import DeliveryShown
from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class GroupInList(Noun):
    """A group with its lag, in messages; what is unknown is null.

    ``behind`` have an offset and are not claimed, ``open`` are claimed and not settled, ``retries``
    wait to be tried again, ``dead`` are dead letters that wait. HTTP counts up to 10,000.
    ``state`` says what the group does, ``trouble`` why it needs somebody, the worst first. ``rate``
    is how many messages may begin, empty where that has no limit. Measured rates are messages a
    second; with them the backlog is gone in ``clear_seconds``.
    """

    group: str = column("lag.group.name")
    topic: str = column("lag.group.topic.name")
    database: str = column("lag.group._state.db")
    mode: str = column("lag.group.kind")
    rate: str = column("lag.group.rate_in_force")
    ordered: bool | Literal["key"] = column("lag.group.order")
    state: str = column("condition.value")
    trouble: list[str]
    paused: bool = column("lag.group.paused")
    consumers: int = column("lag.consumers")
    behind: int | None = column("lag.behind")
    clear_seconds: timedelta | None = column("clearing.time")
    open: int = column("lag.open")
    retries: int = column("lag.waiting")
    dead: int = column("lag.dead")
    age_seconds: timedelta | None = column("lag.age")
    blocked_partitions: int = column("lag.blocked")
    reset_at: datetime | None = column("lag.reset_at")
    published_per_second: float | None = column("known.published")
    consumed_per_second: float | None = column("known.consumed")


@dataclass(frozen=True, kw_only=True)
class BlockedGroup(GroupInList):
    """A group with the message that has blocked it the longest, if it is ordered and blocked."""

    blocked_by: str | None
    attempt: int | None
    next_attempt: datetime | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class GroupPlace(Noun):
    """How far the group is in a partition: ``next`` is the offset that it claims next."""

    partition: int
    next: int = column("next_offset")
    end: int
    retry: int | None
    attempt: int
    blocked_until: datetime | None


@dataclass(frozen=True, kw_only=True)
class GroupOverrides(Noun):
    """What an operator has set instead of what the code says; null: nothing."""

    max_retries: int | None
    retry_policy: str
    consume_timeout: int | None
    batch: int | None
    rate: str


@dataclass(frozen=True, kw_only=True)
class GroupState(GroupInList):
    overrides: GroupOverrides
    partitions: list[GroupPlace]
    clients: list[GroupClient]
    deliveries: list[DeliveryShown]
