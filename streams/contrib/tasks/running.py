"""Says which tasks run now, for how long, and how long they usually take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.names import queue_of
from streams.models import ConsumerGroup, Delivery
from streams.observe.work import LINES, RunningTask

# In tasks of a name that were successful before: what is usual is learnt from them.
LEARNT_FROM = 20


def running(groups: Sequence[ConsumerGroup], now: datetime, using: str) -> list[RunningTask]:
    """Return the tasks that run now, those first that began first.

    Index: ems_task_ended (status, finished_at), whose entries of RUNNING are few.
    """
    queues = [queue_of(group.topic.name) for group in groups]
    rows = TaskRun.objects.using(using).filter(status=TaskResultStatus.RUNNING, queue__in=queues)
    found = list(rows.order_by("last_attempted_at")[:LINES])
    usual = usual_of({row.path for row in found}, using)
    held = _held(groups, using)
    return [
        RunningTask(
            queue=row.queue,
            task=row.path,
            since=row.last_attempted_at or row.enqueued_at,
            running=max(now - (row.last_attempted_at or now), timedelta(0)),
            usual=usual.get(row.path),
            worker=row.worker_ids[-1] if row.worker_ids else "",
            attempt=row.attempts,
            pk=row.pk,
            alive=any(
                queue == row.queue
                and number == row.partition
                and first <= (row.offset or 0) <= last
                for queue, number, first, last in held
            ),
        )
        for row in found
    ]


def usual_of(paths: set[str], using: str) -> Mapping[str, timedelta]:
    """Return how long each task usually takes. Index: ems_task_path (path, status)."""
    found: dict[str, timedelta] = {}
    for path in sorted(paths):
        rows = TaskRun.objects.using(using).filter(path=path, status=TaskResultStatus.SUCCESSFUL)
        ends = rows.order_by("-pk").values_list("last_attempted_at", "finished_at")
        took = [(end - begin).total_seconds() for begin, end in ends[:LEARNT_FROM] if begin and end]
        if took:
            found[path] = timedelta(seconds=median(took))
    return found


def _held(groups: Sequence[ConsumerGroup], using: str) -> list[tuple[str, int, int, int]]:
    topics = {group.pk: group.topic.name for group in groups}
    rows = Delivery.objects.using(using).held().filter(group__in=list(topics))
    columns = ("group", "partition__number", "first_offset", "last_offset")
    found = rows.order_by("claimed_at").values_list(*columns)[: 10 * LINES]
    return [(queue_of(topics[group]), *place) for group, *place in found]
