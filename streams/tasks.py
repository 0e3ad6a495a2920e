"""Defines the time-driven steps as Celery tasks, which schedule.py names."""

from __future__ import annotations

import logging
from functools import cache

from celery import shared_task

from streams.conf import database, settings
from streams.consume.registry import autodiscover
from streams.database.transactions import committing
from streams.logs import event
from streams.schedule import EVERY
from streams.steps.nightly_purge import purge_if_due
from streams.steps.of_apps import run_steps_of_apps
from streams.steps.retries import step_retries_if_due
from streams.steps.sequence import sequence_all
from streams.steps.sweep import sweep_if_due

logger = logging.getLogger("streams.maintenance")


def is_off() -> bool:
    """Tell whether EMS is off in this process, whose tasks then do nothing; say so once."""
    off = not settings().ENABLED
    if off:
        _say_off()
    return off


@cache
def _say_off() -> None:
    logger.warning(
        "EMS is off in this worker: its tasks do nothing. See EMS['ENABLED']",
        extra=event("maintenance.off"),
    )


@shared_task(name="ems.sequence", ignore_result=True, expires=EVERY["sequence"])
def sequence(using: str | None = None) -> None:
    if is_off():
        return
    with committing(database(using)) as alias:
        sequence_all(alias)


@shared_task(name="ems.sweep", ignore_result=True, expires=EVERY["sweep"])
def sweep(using: str | None = None) -> None:
    if is_off():
        return
    autodiscover()  # @consumer says how many retries a group has
    with committing(database(using)) as alias:
        sweep_if_due(alias)


@shared_task(name="ems.retries", ignore_result=True, expires=EVERY["retries"])
def retries(using: str | None = None) -> None:
    if is_off():
        return
    autodiscover()
    with committing(database(using)) as alias:
        step_retries_if_due(alias)


@shared_task(name="ems.purge", ignore_result=True, expires=EVERY["purge"])
def purge(using: str | None = None) -> None:
    if is_off():
        return
    with committing(database(using)) as alias:
        # The purge is due once a night, and in slices: each task does a part, and ends before the
        # next one begins.
        purge_if_due(alias, seconds=EVERY["purge"] - 10)


@shared_task(name="ems.steps", ignore_result=True, expires=EVERY["steps"])
def steps(using: str | None = None) -> None:
    """Run the steps of other apps that are due, such as those of the monitoring."""
    if is_off():
        return
    autodiscover()  # @consumer says after how long a call is slow
    with committing(database(using)) as alias:
        run_steps_of_apps(alias)
