"""How far behind each group is, read live from the tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Min, Sum

from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
    UtcNow,
)

# Dead letters of a group are counted up to here; beyond, "10000+" says enough.
COUNT_AT_MOST = 10_000


@dataclass(frozen=True)
class Lag:
    """One group, as it is now. Counts of messages; an unknown age is None, never 0."""

    group: ConsumerGroup
    behind: int  # sequenced and not claimed yet
    open: int  # claimed and not settled yet
    waiting: int  # to be retried
    dead: int  # dead letters not redriven, at most COUNT_AT_MOST
    consumers: int  # live clients
    age: timedelta | None  # since the oldest unfinished message was sequenced


def lags(groups: Iterable[ConsumerGroup], using: str) -> list[Lag]:
    """The lag of each of the groups, in their order."""
    chosen = list(groups)
    ids = [group.pk for group in chosen]
    behind = _by_group(
        Cursor.objects.using(using)
        .filter(group__in=ids, replay=0)
        .values("group")
        .annotate(n=Sum(F("partition__next_offset") - F("next_offset")))
    )
    open_ = _by_group(
        Delivery.objects.using(using)
        .filter(state=State.START, group__in=ids)
        .values("group")
        .annotate(n=Sum(F("last_offset") + 1 - F("progress")))
    )
    waiting = _by_group(
        RetryMessage.objects.using(using)
        .filter(group__in=ids, delivery=None)
        .values("group")
        .annotate(n=Count("pk"))
    )
    consumers = _by_group(
        Consumer.objects.using(using)
        .live()
        .filter(group__in=ids)
        .values("group")
        .annotate(n=Count("pk"))
    )
    return [
        Lag(
            group=group,
            behind=behind.get(group.pk, 0),
            open=open_.get(group.pk, 0),
            waiting=waiting.get(group.pk, 0),
            dead=DeadMessage.objects.using(using)
            .filter(group=group, redriven_at=None)[:COUNT_AT_MOST]
            .count(),
            consumers=consumers.get(group.pk, 0),
            age=_age(group, using),
        )
        for group in chosen
    ]


def _by_group(rows: Iterable[Any]) -> dict[int, int]:
    return {row["group"]: int(row["n"]) for row in rows}


def _age(group: ConsumerGroup, using: str) -> timedelta | None:
    """Since the oldest message was sequenced that the group has not finished."""
    ages = []
    for cursor in Cursor.objects.using(using).filter(group=group, replay=0):
        place = {"group": group.pk, "partition": cursor.partition_id}
        unsettled = Delivery.objects.using(using).open().filter(**place)
        retries = RetryMessage.objects.using(using).filter(**place)
        offsets = (
            cursor.next_offset,
            unsettled.aggregate(m=Min("progress"))["m"],
            retries.aggregate(m=Min("offset"))["m"],
        )
        oldest = min(offset for offset in offsets if offset is not None)
        message = Message.objects.using(using).filter(
            partition=cursor.partition_id, offset__gte=oldest
        )
        age = message.order_by("offset").annotate(now=UtcNow()).values_list("sequenced_at", "now")
        if first := age.first():
            ages.append(first[1] - first[0])
    return max(ages, default=None)
