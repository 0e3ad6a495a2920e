"""Runs the step that wakes groups for due retries, and gives up on those without attempts left."""

from __future__ import annotations

import random
from datetime import timedelta

from streams.consume.limits import known_max_retries
from streams.consume.outcome import backoff, notices
from streams.consume.outcome.dead_letter import give_up
from streams.consume.outcome.expire import ended_uncalled
from streams.consume.outcome.failure import AttemptsExhausted
from streams.database.retrying import retrying
from streams.deliver.claim import groups_with_due_retries
from streams.models import ConsumerGroup, Partition, RetryMessage, Step
from streams.models.step import RETRIES
from streams.steps.time_limit import TimeLimit
from streams.wakeup import announce

RETRIES_EVERY = timedelta(seconds=1)
# The most retries of a group that one run gives up on; the next run goes on.
BATCH = 500


def step_retries(using: str) -> int:
    """Wake the consumers for due retries; turn those without attempts left into dead letters.

    Returns the number of dead letters.
    """
    every = ConsumerGroup.objects.using(using).select_related("topic")
    groups = {group.pk: group for group in retrying(list, using, every)}
    due = groups_with_due_retries(list(groups), using)
    if due:
        announce(using)
    limit = TimeLimit(RETRIES, using)
    # In random order: the groups after one that takes all of the time have their turn, too.
    order = random.sample(sorted(due), len(due))
    buried = 0
    for group in order:
        buried += _bury_exhausted(groups[group], limit, using)
        if buried and limit.over:
            limit.say()
            break
    return buried


def _bury_exhausted(group: ConsumerGroup, limit: TimeLimit, using: str) -> int:
    max_retries = known_max_retries(group, using)
    if max_retries is None:
        return 0
    due = RetryMessage.objects.using(using).due().filter(group=group.pk).order_by("due_at")
    rows = retrying(list, using, due[:BATCH])
    buried = 0
    for row in rows:
        if buried and limit.over:
            break
        if backoff.exhausted(row.attempt - 1, max_retries) and not ended_uncalled(
            row, row.offset, using
        ):
            row.group = group
            spent = AttemptsExhausted(row.last_error)
            if retrying(give_up, using, row, spent):
                buried += 1
                partitions = Partition.objects.using(using).filter(pk=row.partition_id)
                number = retrying(partitions.values_list("number", flat=True).get, using)
                place = group.topic.name, number, row.offset
                tried = notices.Attempt(*place, group.name, row.attempt - 1)
                notices.died(tried, spent, group.name, using)
    return buried


def step_retries_if_due(using: str) -> int:
    """Run the step, unless any process has in the last RETRIES_EVERY; return the dead letters."""
    won = retrying(Step.objects.using(using).win, using, RETRIES, RETRIES_EVERY)
    return step_retries(using) if won else 0
