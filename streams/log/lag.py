"""Computes how far behind each group is, read live from the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Min, Q, Sum, TextChoices
from django.utils.translation import gettext_lazy as _

from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Mode,
    RetryMessage,
    UtcNow,
)

# In partitions: one statement reads the age of a message of at most this many.
CHUNK = 200

Place = tuple[int, int]  # group, partition


class GroupState(TextChoices):
    """Says what a group does at the moment."""

    BLOCKED = "blocked", _("blocked")  # by a failed message, in an ordered group
    UNATTENDED = "unattended", _("no consumer")  # and messages wait
    PAUSED = "paused", _("paused")
    RUNNING = "running", _("running")
    IDLE = "idle", _("no consumer")  # as far as EMS knows, nothing waits


@dataclass(frozen=True)
class Lag:
    """Holds the lag of one group, in messages; what is unknown is None, never 0."""

    group: ConsumerGroup
    # Sequenced and not claimed yet, or given back; None: no cursor tells (broadcast).
    behind: int | None
    open: int  # claimed and not settled yet
    waiting: int  # to be retried
    dead: int  # dead letters not redriven
    consumers: int  # live clients
    age: timedelta | None  # since the oldest unfinished message was sequenced
    blocked: int = 0  # partitions in which a failed message holds up those after it (ordered)

    @property
    def state(self) -> GroupState:
        if self.group.paused:
            return GroupState.PAUSED
        if self.blocked:
            return GroupState.BLOCKED
        if self.consumers:
            return GroupState.RUNNING
        return GroupState.UNATTENDED if self.behind or self.waiting else GroupState.IDLE

    @property
    def trouble(self) -> tuple[bool, timedelta, int, int]:
        """Return a key that sorts the groups by their need for action, the highest first."""
        is_blocked = self.state == GroupState.BLOCKED
        return is_blocked, self.age or timedelta(0), (self.behind or 0) + self.waiting, self.dead


def lags(groups: Iterable[ConsumerGroup], using: str) -> list[Lag]:
    """Return the lag of each of ``groups``, in their order.

    The number of statements does not grow with the number of groups.
    """
    chosen = list(groups)
    ids = [group.pk for group in chosen]
    # A broadcast group has no cursors: its clients keep their positions on their own disks.
    with_cursors = [group.pk for group in chosen if group.mode != Mode.BROADCAST]
    cursors = Cursor.objects.using(using).filter(replay=0, group__in=with_cursors)
    ahead = F("partition__next_offset") - F("next_offset")
    places = cursors.values("group").annotate(
        n=Sum(ahead), blocked=Count("pk", filter=Q(attempt__gt=1))
    )
    blocked = {row["group"]: int(row["blocked"]) for row in places}
    behind = _by_group(places)
    claimed = Delivery.objects.using(using).held().filter(group__in=ids)
    waits = Delivery.objects.using(using).given_back().filter(group__in=with_cursors)
    for group, n in _by_group(
        waits.exclude(kind=Kind.REPLAY)
        .values("group")
        .annotate(n=Sum(F("last_offset") + 1 - F("progress")))
    ).items():
        behind[group] = behind.get(group, 0) + n
    open_ = _by_group(claimed.values("group").annotate(n=Sum(F("last_offset") + 1 - F("progress"))))
    retries = RetryMessage.objects.using(using).filter(group__in=ids)
    waiting = _by_group(retries.filter(delivery=None).values("group").annotate(n=Count("pk")))
    letters = DeadMessage.objects.using(using).filter(group__in=ids).waiting()
    dead = _by_group(letters.values("group").annotate(n=Count("pk")))
    clients = Consumer.objects.using(using).live().filter(group__in=ids)
    consumers = _by_group(clients.values("group").annotate(n=Count("pk")))
    # Replays are left out, since they are old on purpose. So are offsets that have been purged (of
    # redriven dead letters): they have no age, and must not hide the age of the others.
    first = F("partition__first_offset")
    in_hand = claimed.exclude(kind=Kind.REPLAY).filter(progress__gte=first)
    oldest = _oldest(
        cursors.values_list("group", "partition", "next_offset"),
        in_hand.values_list("group", "partition").annotate(m=Min("progress")),
        waits.exclude(kind=Kind.REPLAY)
        .filter(progress__gte=first)
        .values_list("group", "partition")
        .annotate(m=Min("progress")),
        retries.filter(offset__gte=first)
        .values_list("group", "partition")
        .annotate(m=Min("offset")),
    )
    oldest_of: dict[int, timedelta] = {}
    for (of, _partition), age in _ages(oldest, using).items():
        oldest_of[of] = max(age, oldest_of.get(of, age))
    return [
        Lag(
            group=group,
            behind=behind.get(group.pk),
            open=open_.get(group.pk, 0),
            waiting=waiting.get(group.pk, 0),
            dead=dead.get(group.pk, 0),
            consumers=consumers.get(group.pk, 0),
            age=oldest_of.get(group.pk),
            blocked=blocked.get(group.pk, 0),
        )
        for group in chosen
    ]


def _by_group(rows: Iterable[Any]) -> dict[int, int]:
    return {row["group"]: int(row["n"]) for row in rows}


def _oldest(*sources: Iterable[tuple[int, int, int]]) -> dict[Place, int]:
    """Return the lowest offset of each group and partition that is not finished."""
    found: dict[Place, int] = {}
    for source in sources:
        for group, partition, offset in source:
            found[group, partition] = min(offset, found.get((group, partition), offset))
    return found


def _ages(oldest: dict[Place, int], using: str) -> dict[Place, timedelta]:
    """Return the time since these messages were sequenced; offsets without one are left out."""
    offsets: dict[int, set[int]] = {}
    for (_group, partition), offset in oldest.items():
        offsets.setdefault(partition, set()).add(offset)
    ages: dict[tuple[Any, Any], timedelta] = {}
    for places in _chunks(offsets):
        chosen = Q()
        for partition, of_partition in places.items():
            chosen |= Q(partition=partition, offset__in=of_partition)
        rows = Message.objects.using(using).filter(chosen).annotate(now=UtcNow())
        for row in rows.values("partition", "offset", "sequenced_at", "now"):
            ages[row["partition"], row["offset"]] = row["now"] - row["sequenced_at"]
    return {
        (group, partition): ages[partition, offset]
        for (group, partition), offset in oldest.items()
        if (partition, offset) in ages
    }


def _chunks(offsets: dict[int, set[int]]) -> Iterator[dict[int, set[int]]]:
    partitions = list(offsets)
    for start in range(0, len(partitions), CHUNK):
        yield {partition: offsets[partition] for partition in partitions[start : start + CHUNK]}
