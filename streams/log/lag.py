"""Computes how far behind each group is, read live from the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import (
    BooleanField,
    Case,
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce

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
from streams.models.cursor import BLOCKED
from streams.models.delivery import UNSETTLED

# In partitions: one statement reads a message of each of at most this many.
CHUNK = 200

Place = tuple[int, int]  # group, partition

# What is counted of each group; and for how many microseconds its oldest dead letter has waited,
# and what a client of it needs has been away.
WAITING, DEAD, CONSUMERS, DEAD_AGE, AWAY = "waiting", "dead", "consumers", "dead age", "away"
Counted = tuple[str, int]  # one of these, and the group


class CursorPlace(NamedTuple):
    """How far a group is in one partition."""

    group: int
    partition: int
    next_offset: int
    end: int  # of the partition
    is_blocked: bool
    attempt: int
    reset_at: datetime | None
    blocked_until: datetime | None
    blocked_at: datetime | None  # when the message that blocks it failed first
    retry: int | None  # the lowest offset to be retried


@dataclass(frozen=True)
class Lag:
    """The lag of one group, in messages; what is unknown is None, never 0."""

    group: ConsumerGroup
    # Sequenced and not claimed yet, or given back; None: no cursor tells (broadcast).
    behind: int | None
    open: int  # claimed and not settled yet
    waiting: int  # to be retried
    dead: int  # dead letters not redriven
    consumers: int  # live clients
    age: timedelta | None  # since the oldest unfinished message was sequenced
    blocked: int = 0  # partitions in which a failed message holds up those after it (ordered)
    blocked_at: datetime | None = None  # since when the first of these is blocked
    end: int | None = None  # messages of the log so far, in all partitions that it reads
    reset_at: datetime | None = None  # the newest reset: ``done`` does not compare across it
    dead_age: timedelta | None = None  # since the oldest letter of ``dead``
    called_at: datetime | None = None  # since when the oldest claim is in hand
    away: timedelta | None = None  # for how long a client has lacked what its handlers need
    places: Sequence[CursorPlace] = ()

    @property
    def unfinished(self) -> int:
        """Return how many messages the group has still to handle, as far as is known."""
        return (self.behind or 0) + self.open + self.waiting

    @property
    def done(self) -> int | None:
        """Return how many messages of the log the group has finished, or passed on purpose.

        Each message of the log is behind, open, waiting, dead or done.
        """
        if self.end is None or self.behind is None:
            return None
        return self.end - self.behind - self.open - self.waiting - self.dead


def countable(groups: Iterable[ConsumerGroup], using: str) -> dict[Counted, QuerySet[Any]]:
    """Return the rows of each group that ``lags()`` counts, for ``count_each()``."""
    found: dict[Counted, QuerySet[Any]] = {}
    retries = RetryMessage.objects.using(using).filter(delivery=None)
    letters = DeadMessage.objects.using(using).waiting()
    clients = Consumer.objects.using(using).live()
    for group in groups:
        found[WAITING, group.pk] = retries.filter(group=group.pk)
        found[DEAD, group.pk] = letters.filter(group=group.pk)
        found[DEAD_AGE, group.pk] = _oldest(group.pk, using)
        found[CONSUMERS, group.pk] = clients.filter(group=group.pk)
        found[AWAY, group.pk] = _away(group.pk, using)
    return found


def lags(
    groups: Iterable[ConsumerGroup], using: str, counts: Mapping[Any, int] | None = None
) -> list[Lag]:
    """Return the lag of each of ``groups``, in their order.

    ``counts`` is what the caller has counted of the rows in ``countable()``, up to a limit: to
    count hundreds of thousands takes long. By default all of them are counted. The number of
    statements does not grow with the number of groups.
    """
    chosen = list(groups)
    counted = _count_all([group.pk for group in chosen], using) if counts is None else counts
    # A broadcast group has no cursors: its clients keep their positions on their own disks.
    with_cursors = [group.pk for group in chosen if group.mode != Mode.BROADCAST]
    sums: dict[int, _Sum] = {group.pk: _Sum() for group in chosen}
    oldest: dict[Place, int] = {}
    for cursor in _cursors(with_cursors, using):
        sums[cursor.group].add_cursor(cursor)
        place = cursor.group, cursor.partition
        oldest[place] = cursor.next_offset
        if cursor.retry is not None:
            oldest[place] = min(oldest[place], cursor.retry)
    for claim in _open_claims([group.pk for group in chosen], using):
        sums[claim["group"]].add_claim(claim)
        # Replays are left out, since they are old on purpose.
        if claim["kind"] != Kind.REPLAY and claim["oldest"] is not None:
            place = claim["group"], claim["partition"]
            oldest[place] = min(claim["oldest"], oldest.get(place, claim["oldest"]))
    ages: dict[int, timedelta] = {}
    for (of, _partition), age in ages_of(oldest, using).items():
        ages[of] = max(age, ages.get(of, age))
    return [
        Lag(
            group=group,
            behind=sums[group.pk].behind,
            open=sums[group.pk].open,
            waiting=counted.get((WAITING, group.pk), 0),
            dead=counted.get((DEAD, group.pk), 0),
            consumers=counted.get((CONSUMERS, group.pk), 0),
            age=ages.get(group.pk),
            blocked=sums[group.pk].blocked,
            blocked_at=sums[group.pk].blocked_at,
            end=sums[group.pk].end,
            reset_at=sums[group.pk].reset_at,
            dead_age=_microseconds(counted.get((DEAD_AGE, group.pk))),
            called_at=sums[group.pk].called_at,
            away=_microseconds(counted.get((AWAY, group.pk))),
            places=sums[group.pk].places,
        )
        for group in chosen
    ]


@dataclass
class _Sum:
    """The sum of the cursors and the open deliveries of a group."""

    behind: int | None = None
    open: int = 0
    blocked: int = 0
    blocked_at: datetime | None = None
    end: int | None = None
    reset_at: datetime | None = None
    called_at: datetime | None = None
    places: list[CursorPlace] = field(default_factory=list)

    def add_cursor(self, cursor: CursorPlace) -> None:
        self.places.append(cursor)
        self.behind = (self.behind or 0) + cursor.end - cursor.next_offset
        self.end = (self.end or 0) + cursor.end
        if cursor.is_blocked:
            self.blocked += 1
            self.blocked_at = min(filter(None, (cursor.blocked_at, self.blocked_at)), default=None)
        if cursor.reset_at and (self.reset_at is None or cursor.reset_at > self.reset_at):
            self.reset_at = cursor.reset_at

    def add_claim(self, claim: Mapping[str, Any]) -> None:
        if claim["is_held"]:
            self.open += int(claim["n"])
            known = [at for at in (self.called_at, claim["called_at"]) if at is not None]
            self.called_at = min(known, default=None)
        elif claim["kind"] != Kind.REPLAY:  # given back: the next claim takes it
            self.behind = (self.behind or 0) + int(claim["n"])


def _cursors(groups: list[int], using: str) -> Iterator[CursorPlace]:
    """Yield the groups' own cursors, each with the first offset that is to be retried.

    One look into the index for each cursor, however many retries there are. Offsets that have been
    purged (of redriven dead letters) are left out: they have no age, and must not hide that of the
    others.
    """
    retries = RetryMessage.objects.using(using).filter(
        group=OuterRef("group"),
        partition=OuterRef("partition"),
        offset__gte=OuterRef("partition__first_offset"),
    )
    rows = Cursor.objects.using(using).filter(replay=0, group__in=groups)
    rows = rows.annotate(blocked=ExpressionWrapper(BLOCKED, BooleanField()))
    of_cursor = ("group", "partition", "next_offset", "partition__next_offset")
    of_state = ("blocked", "attempt", "reset_at", "blocked_until", "blocked_at")
    # By the whole index: MySQL sorts what a correlated subquery fixes, and would read all retries.
    in_order = retries.order_by("group", "partition", "offset")
    first = Subquery(in_order.values("offset")[:1])
    return (CursorPlace(*row) for row in rows.values_list(*of_cursor, *of_state, first))


def _open_claims(groups: list[int], using: str) -> Iterable[Mapping[str, Any]]:
    """Return how many messages are open at each place, and the lowest one that is still there."""
    rows = Delivery.objects.using(using).open().filter(group__in=groups)
    by_place = rows.annotate(
        is_held=Case(When(token="", then=False), default=True, output_field=BooleanField())
    ).values("group", "partition", "kind", "is_held")
    return by_place.annotate(
        n=Sum(UNSETTLED),
        oldest=Min("progress", filter=Q(progress__gte=F("partition__first_offset"))),
        # A first attempt has no start until its first calls are settled.
        called_at=Min(Coalesce("started_at", "claimed_at")),
    )


def _oldest(group: int, using: str) -> QuerySet[Any]:
    """Return since when, in microseconds, the first of a group's waiting letters has waited.

    One look into ems_dead_waiting, which has them before the others. With a filter for those that
    wait a server would take the first letter of all groups by its id, or sort them.
    """
    age = ExpressionWrapper(UtcNow() - F("died_at"), output_field=DurationField())
    waits = Case(When(redriven_at=None, then=age))
    letters = DeadMessage.objects.using(using).filter(group=group)
    return letters.order_by("redriven_at", "pk").values(value=waits)[:1]


def _away(group: int, using: str) -> QuerySet[Any]:
    """Return for how long, in microseconds, what a client needs has been away; of few rows."""
    age = ExpressionWrapper(UtcNow() - F("away_since"), output_field=DurationField())
    clients = Consumer.objects.using(using).away().filter(group=group)
    return clients.order_by("away_since").values(value=age)[:1]


def _microseconds(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(microseconds=max(0, value))


def _count_all(groups: list[int], using: str) -> dict[Counted, int]:
    """Count without a limit. One statement; one more while there are dead letters, or one waits."""
    rows: dict[str, QuerySet[Any]] = {
        WAITING: RetryMessage.objects.using(using).filter(delivery=None),
        DEAD: DeadMessage.objects.using(using).waiting(),
        CONSUMERS: Consumer.objects.using(using).live(),
        AWAY: Consumer.objects.using(using).away(),
    }
    first, *others = (
        of_groups.filter(group__in=groups)
        .order_by()
        .values("group")
        .annotate(n=Count("pk"), what=Value(what))
        .values_list("what", "group", "n")
        for what, of_groups in rows.items()
    )
    found = {(what, group): n for what, group, n in first.union(*others, all=True)}
    ages = {(DEAD_AGE, group): _oldest(group, using) for what, group in found if what == DEAD}
    ages |= {(AWAY, group): _away(group, using) for what, group in found if what == AWAY}
    return {**found, **count_each(ages, 1, using)}


def ages_of(oldest: Mapping[Place, int], using: str) -> dict[Place, timedelta]:
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
