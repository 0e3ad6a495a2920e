"""Computes how far behind each group is, read live from the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum, TextChoices
from django.utils.translation import gettext_lazy as _

from streams.log.counting import count_each
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
    end: int | None = None  # messages of the log so far, in all partitions that it reads
    reset_at: datetime | None = None  # the newest reset: ``done`` does not compare across it

    @property
    def done(self) -> int | None:
        """Return how many messages of the log the group has finished, or passed on purpose.

        Each message of the log is behind, open, waiting, dead or done.
        """
        if self.end is None or self.behind is None:
            return None
        return self.end - self.behind - self.open - self.waiting - self.dead

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


def lags(groups: Iterable[ConsumerGroup], using: str, *, at_most: int | None = None) -> list[Lag]:
    """Return the lag of each of ``groups``, in their order.

    Retries and dead letters of a group are counted up to ``at_most``, by default all of them: to
    count hundreds of thousands takes long. The number of statements does not grow with the number
    of groups, below a hundred.
    """
    chosen = list(groups)
    ids = [group.pk for group in chosen]
    # A broadcast group has no cursors: its clients keep their positions on their own disks.
    with_cursors = [group.pk for group in chosen if group.mode != Mode.BROADCAST]
    cursors = Cursor.objects.using(using).filter(replay=0, group__in=with_cursors)
    ahead = F("partition__next_offset") - F("next_offset")
    places = cursors.values("group").annotate(
        n=Sum(ahead),
        blocked=Count("pk", filter=Q(attempt__gt=1)),
        end=Sum("partition__next_offset"),
        reset=Max("reset_at"),
    )
    totals = {row["group"]: row for row in places}
    behind = _by_group(totals.values())
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
    waiting = _counts(retries.filter(delivery=None), ids, at_most, using)
    dead = _counts(DeadMessage.objects.using(using).waiting(), ids, at_most, using)
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
        _first_retries(cursors, using),
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
            blocked=int(totals[group.pk]["blocked"]) if group.pk in totals else 0,
            end=int(totals[group.pk]["end"]) if group.pk in totals else None,
            reset_at=totals[group.pk]["reset"] if group.pk in totals else None,
        )
        for group in chosen
    ]


def _by_group(rows: Iterable[Any]) -> dict[int, int]:
    return {row["group"]: int(row["n"]) for row in rows}


def _counts(
    rows: QuerySet[Any], groups: list[int], at_most: int | None, using: str
) -> dict[int, int]:
    if at_most is None:
        of_groups = rows.filter(group__in=groups)
        return _by_group(of_groups.values("group").annotate(n=Count("pk")))
    return count_each({group: rows.filter(group=group) for group in groups}, at_most, using)


def _first_retries(cursors: QuerySet[Cursor], using: str) -> Iterator[tuple[int, int, int]]:
    """Yield the lowest offset to be retried of each group and partition that has one.

    One look into the index for each cursor, however many retries there are.
    """
    of_place = RetryMessage.objects.using(using).filter(
        group=OuterRef("group"),
        partition=OuterRef("partition"),
        offset__gte=OuterRef("partition__first_offset"),
    )
    first = Subquery(of_place.order_by("offset").values("offset")[:1])
    for group, partition, offset in cursors.values_list("group", "partition", first):
        if offset is not None:
            yield group, partition, offset


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
