"""Tells which claims are in hand, since when, and how long as many messages usually take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Coalesce

from streams.log.counting import read_each
from streams.log.lag import Lag, Place
from streams.models import Delivery, State

# A claim in hand is slow when it takes so many times as long as is usual, and at least so long.
TIMES = 10
AT_LEAST = timedelta(seconds=30)
# In deliveries before a claim, of the same group and partition: what is usual is learnt from them.
LEARNT_FROM = 50
# In claims and in places: what is read at most, the oldest claims first.
CLAIMS, PLACES = 200, 50


@dataclass(frozen=True)
class Call:
    """A claim that a client has in hand."""

    pk: int
    group: int
    client: str
    thread: str
    partition: int
    first_offset: int
    last_offset: int
    progress: int
    kind: str
    attempt: int
    # Since the handler got the claim: the earlier calls of the same claim count.
    running: timedelta
    usual: timedelta | None  # for as many messages; None if no delivery tells
    deadline: datetime
    left: timedelta  # until the deadline; below zero it is overdue

    @property
    def is_overdue(self) -> bool:
        return self.left < timedelta(0)

    @property
    def is_slow(self) -> bool:
        """Tell whether it takes much longer than is usual.

        While nothing is known, whether more than half of the time for the call is gone.
        """
        if self.usual is None:
            return self.running > self.left
        return self.running >= max(AT_LEAST, TIMES * self.usual)


def calls(rows: Iterable[Delivery], now: datetime, using: str) -> list[Call]:
    """Return these deliveries, which clients hold, with what is usual. At most one statement."""
    held = list(rows)
    each = _usual(held, using)
    return [
        Call(
            pk=row.pk,
            group=row.group_id,
            client=row.client_id,
            thread=row.thread,
            partition=row.partition_id,
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            progress=row.progress,
            kind=row.kind,
            attempt=row.attempt,
            # A first attempt has no start until its first calls are settled.
            running=max(now - (row.started_at or row.claimed_at), timedelta(0)),
            usual=usual and usual * len(row.offsets),
            deadline=row.deadline,
            left=row.deadline - now,
        )
        for row in held
        for usual in [each.get((row.group_id, row.partition_id))]
    ]


def slow_calls(lags: Iterable[Lag], now: datetime, using: str) -> dict[int, Call]:
    """Return the longest of the slow claims of each group that has one.

    No statement where no claim is old enough, else two.
    """
    old = [lag.group.pk for lag in lags if lag.called_at and now - lag.called_at >= AT_LEAST]
    if not old:
        return {}
    held = Delivery.objects.using(using).held().filter(group__in=old).order_by("claimed_at")
    found = [call for call in calls(held[:CLAIMS], now, using) if call.is_slow]
    return {call.group: call for call in sorted(found, key=lambda one: one.running)}


def _usual(held: Iterable[Delivery], using: str) -> Mapping[Place, timedelta]:
    """Return how long one message usually takes at the places of these deliveries.

    It is the median of the newest deliveries before them that ended without a failure.
    """
    newest: dict[Place, int] = {}
    for row in held:
        place = row.group_id, row.partition_id
        newest[place] = max(row.first_offset, newest.get(place, 0))
    took = ExpressionWrapper(
        F("finished_at") - Coalesce("started_at", "claimed_at"), output_field=DurationField()
    )
    rows = Delivery.objects.using(using).order_by("-first_offset").annotate(took=took)
    before = {
        (group, partition): rows.filter(
            group=group, partition=partition, first_offset__lt=first
        ).values_list("state", "first_offset", "last_offset", "took")[:LEARNT_FROM]
        for (group, partition), first in list(newest.items())[:PLACES]
    }
    found: dict[Place, timedelta] = {}
    for place, ended in read_each(before, using).items():
        of_each = [
            int(microseconds) / (last + 1 - first)
            for state, first, last, microseconds in ended
            if state == State.DONE
        ]
        if of_each:
            found[place] = timedelta(microseconds=max(0.0, median(of_each)))
    return found
