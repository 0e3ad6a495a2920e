"""Runs the system checks of the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.db import Error as DatabaseError

from streams.contrib.tasks.envelope import imported
from streams.contrib.tasks.names import GROUP, topic_of
from streams.contrib.tasks.queues import backends
from streams.models import ConsumerGroup
from streams.sharding import alias_of


@register(Tags.compatibility)
def check_backends(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check the queues and the schedules of each backend."""
    return [message for backend in backends() for message in of_backend(backend)]


def of_backend(backend: Any) -> Iterator[CheckMessage]:
    if not backend.queues:
        yield checks.Error(
            f"TASKS[{backend.alias!r}] names no QUEUES: nobody would run what is enqueued.",
            hint="Name them: each is a topic, and a consumer is registered for each.",
            id="ems.E031",
        )
    for name, schedule in backend.known.schedules.items():
        try:
            imported(schedule["path"])
        except Exception as error:  # noqa: BLE001 - its module may raise anything
            yield checks.Warning(
                f"The schedule {name} names {schedule['path']}, which is no task: {error}",
                hint="It is left out. Give the module path of a function with @task.",
                id="ems.W030",
            )


@register(Tags.compatibility)
def check_names(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that no two backends have a schedule, or a queue, of one name."""
    known = list(backends())
    schedules = Counter(name for one in known for name in one.known.schedules)
    queues = Counter(queue for one in known for queue in one.queues)
    return [
        *(
            checks.Error(
                f"Several backends in TASKS have a schedule {name!r}.",
                hint="Give each a name of its own.",
                id="ems.E032",
            )
            for name, count in schedules.items()
            if count > 1
        ),
        *(
            checks.Error(
                f"Several backends in TASKS have the queue {name!r}, which is one topic.",
                hint="Give each a name of its own.",
                id="ems.E033",
            )
            for name, count in queues.items()
            if count > 1
        ),
    ]


@register(Tags.database)
def check_groups(app_configs: Any, databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that each queue has one group: every group of a topic runs every task."""
    topics = [topic_of(queue) for backend in backends() for queue in backend.queues]
    found: list[CheckMessage] = []
    for using in {alias_of(topic) for topic in topics} & set(databases or ()):
        rows = ConsumerGroup.objects.using(using).filter(topic__name__in=topics)
        try:
            others = list(rows.exclude(name=GROUP).values_list("topic__name", "name"))
        except DatabaseError:
            continue  # not migrated yet, or away
        found += [
            checks.Warning(
                f"The group {name} reads {topic}, too: it gets every task of this queue.",
                hint="Delete it (ems_groups delete), unless it only looks at them.",
                id="ems.W031",
            )
            for topic, name in others
        ]
    return found
