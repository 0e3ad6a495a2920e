"""Defines the time-driven steps as Celery tasks, which schedule.py names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial

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


def _step(work: Callable[[str], object], using: str | None, *, discovers: bool = False) -> None:
    """Call ``work`` with the alias, unless EMS is off; before, import the consumers if it asks."""
    if is_off():
        return
    if discovers:
        autodiscover()
    with committing(database(using)) as alias:
        work(alias)


@shared_task(name="ems.sequence", ignore_result=True, expires=EVERY["sequence"])
def sequence(using: str | None = None) -> None:
    _step(sequence_all, using)


@shared_task(name="ems.sweep", ignore_result=True, expires=EVERY["sweep"])
def sweep(using: str | None = None) -> None:
    _step(sweep_if_due, using, discovers=True)  # @consumer says how many retries a group has


@shared_task(name="ems.retries", ignore_result=True, expires=EVERY["retries"])
def retries(using: str | None = None) -> None:
    _step(step_retries_if_due, using, discovers=True)


@shared_task(name="ems.purge", ignore_result=True, expires=EVERY["purge"])
def purge(using: str | None = None) -> None:
    # The purge is due once a night, and in slices: each task does a part, and ends before the next
    # one begins.
    _step(partial(purge_if_due, seconds=EVERY["purge"] - 10), using)


@shared_task(name="ems.steps", ignore_result=True, expires=EVERY["steps"])
def steps(using: str | None = None) -> None:
    """Run the steps of other apps that are due, such as those of the monitoring."""
    _step(run_steps_of_apps, using, discovers=True)  # @consumer says after how long a call is slow
