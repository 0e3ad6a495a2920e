"""Defines the roll-ups as a Celery task, which schedule.py names."""

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
    if is_off():
        return
    if lacking := java.missing_now():
        logger.warning("%s", lacking, extra=event("rollup.unavailable"))
        return
    status = jobs.run("rollup", ["--fallback"], using, seconds=SECONDS, say=_say)
    if status:
        logger.error("The roll-up has ended with status %d", status, extra=event("rollup.failed"))


def _say(line: str) -> None:
    logger.info("%s", line, extra=event("rollup.output"))
