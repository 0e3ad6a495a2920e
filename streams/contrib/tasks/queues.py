"""Finds the backends of the project in TASKS, and registers a consumer for each of their queues."""

from __future__ import annotations

from collections.abc import Iterator

from streams import consumer
from streams.consume.registry import ranked, timed
from streams.contrib.tasks.backend import EmsBackend
from streams.contrib.tasks.compat import DEFAULT_TASK_QUEUE_NAME, task_backends
from streams.contrib.tasks.lanes import rank_of
from streams.contrib.tasks.names import GROUP, topic_of
from streams.contrib.tasks.work import run_task, timeout_of

# The handler counts the attempts of a task, which has a limit of its own.
NO_LIMIT = 10**6


def backends() -> Iterator[EmsBackend]:
    """Yield the backends of the project that are ours."""
    for alias in task_backends:
        backend = task_backends[alias]
        if isinstance(backend, EmsBackend):
            yield backend


def register() -> None:
    for backend in backends():
        # Without names any queue may be enqueued to, and nobody knows them: a check says so.
        for queue in sorted(backend.queues) or [DEFAULT_TASK_QUEUE_NAME]:
            consumer(
                topic_of(queue),
                group=GROUP,
                start="earliest",
                threads=backend.known.for_queue("threads", queue),
                consume_timeout=backend.known.for_queue("timeout", queue),
                max_retries=NO_LIMIT,
                rate=backend.known.for_queue("rate", queue),
            )(run_task)
            ranked(topic_of(queue), GROUP, rank_of)
            timed(topic_of(queue), GROUP, timeout_of)
