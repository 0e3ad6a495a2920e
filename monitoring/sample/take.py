"""Takes the sample of a minute: the step ``sample`` of consumers and of beat."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max

from monitoring.live.inbox import partition_states
from monitoring.live.limits import COUNT_AT_MOST, known_done
from monitoring.models import GroupSample, PartitionSample
from monitoring.sample.deployments import mark_deployments
from monitoring.sample.grain import GRAINS, floor, grain
from streams.database.clock import database_now
from streams.database.snapshot import snapshot
from streams.database.transactions import own_transaction
from streams.log.counting import count_each
from streams.log.lag import countable, lags
from streams.models import ConsumerGroup, Step
from streams.steps.turns import may_ask, rest

NAME = "sample"
MINUTE = timedelta(minutes=1)
CHUNK = 500


def sample(using: str) -> bool:
    """Take a sample if none has been taken in this minute; tell whether it was."""
    if not may_ask(NAME, using):
        return False
    now = database_now(using)
    minute = floor(now, 1)
    steps = Step.objects.using(using)
    # Not "a minute after the last one": the steps run every few seconds, so the minutes would
    # shift, and one in twenty would have no sample.
    won = steps.win(NAME, now - minute)
    rest(NAME, using, MINUTE - (now - minute))
    if not won:
        return False
    before = newest(using, minute)
    take(using, minute, grain(minute, before))
    mark_deployments(using, before or minute - MINUTE, minute)
    return True


def newest(using: str, before: datetime) -> datetime | None:
    """Return the newest minute before this one that has a sample.

    Not when the step ran last: it may have died before it wrote one. Of this minute another
    namespace may have a sample already.
    """
    rows = PartitionSample.objects.using(using).filter(minute__lt=before)
    found = [rows.filter(grain=one).aggregate(newest=Max("minute"))["newest"] for one in GRAINS]
    return max((minute for minute in found if minute), default=None)


def take(using: str, minute: datetime, of_grain: int) -> None:
    """Write one row for each partition and each group. A minute that has a sample keeps it."""
    with snapshot(using):
        now = database_now(using)
        partitions = partition_states(using, now)
        groups = list(ConsumerGroup.objects.using(using).select_related("topic"))
        counts = count_each(countable(groups, using), COUNT_AT_MOST, using)
        found = lags(groups, using, counts)
    when = {"minute": minute, "taken_at": now, "grain": of_grain}
    logs = [
        PartitionSample(
            **when,
            partition_id=one.pk,
            first_offset=one.first_offset,
            next_offset=one.next_offset,
            inbox=one.inbox,
            inbox_age_seconds=None if one.inbox_age is None else one.inbox_age.total_seconds(),
        )
        for one in partitions
    ]
    readers = [
        GroupSample(
            **when,
            group_id=one.group.pk,
            behind=one.behind,
            open=one.open,
            waiting=one.waiting,
            dead=one.dead,
            done=known_done(one),
            consumers=one.consumers,
            blocked=one.blocked,
            age_seconds=None if one.age is None else one.age.total_seconds(),
            reset_at=one.reset_at,
        )
        for one in found
    ]
    with own_transaction(using):
        PartitionSample.objects.using(using).bulk_create(logs, CHUNK, ignore_conflicts=True)
        GroupSample.objects.using(using).bulk_create(readers, CHUNK, ignore_conflicts=True)
