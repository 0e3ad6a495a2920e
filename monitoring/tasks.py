"""Defines the Celery tasks that schedule.py names: they start Spark jobs."""

from __future__ import annotations

import logging

from celery import shared_task

from monitoring import java, jobs
from monitoring.schedule import EVERY, SECONDS
from streams.logs import event
from streams.tasks import is_off

logger = logging.getLogger("monitoring.tasks")


@shared_task(name="ems.rollup", ignore_result=True, expires=EVERY["rollup"])
def rollup(using: str | None = None) -> None:
    """Roll up what was not yet, up to now, in a new process; one runs at a time.

    Without ``using`` all databases that have topics are rolled up, in one process. It does nothing
    while ``ems_spark serve`` is at work; without anything to do it starts no JVM.
    """
    _run("rollup", ["--fallback"], using)


@shared_task(name="ems.nightly", ignore_result=True, expires=EVERY["nightly"])
def nightly(using: str | None = None) -> None:
    """Archive closed days and reconcile, if they are due, in the same way."""
    _run("nightly", [], using)


def _run(job: str, words: list[str], using: str | None) -> None:
    if is_off():
        return
    if lacking := java.missing_now():
        logger.warning("%s", lacking, extra=event("spark.unavailable", job=job))
        return

    def say(line: str) -> None:
        logger.info("%s", line, extra=event("spark.output", job=job))

    status = jobs.run(job, words, using, seconds=SECONDS[job], say=say)
    if status:
        logger.error(
            "%s has ended with status %d", job, status, extra=event("spark.failed", job=job)
        )
