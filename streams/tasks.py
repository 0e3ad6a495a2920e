"""The time-driven steps as Celery tasks: for schedule.py, or to be called from anywhere."""

from __future__ import annotations

from celery import shared_task

from streams import maintenance
from streams.conf import database
from streams.registry import autodiscover
from streams.schedule import EVERY
from streams.transactions import committing


@shared_task(name="ems.sequence", ignore_result=True, expires=EVERY["sequence"])
def sequence(using: str | None = None) -> None:
    with committing(database(using)) as alias:
        maintenance.sequence_all(alias)


@shared_task(name="ems.sweep", ignore_result=True, expires=EVERY["sweep"])
def sweep(using: str | None = None) -> None:
    autodiscover()  # the decorators say how many retries a group has
    with committing(database(using)) as alias:
        maintenance.sweep_if_due(alias)


@shared_task(name="ems.retries", ignore_result=True, expires=EVERY["retries"])
def retries(using: str | None = None) -> None:
    autodiscover()
    with committing(database(using)) as alias:
        maintenance.step_retries_if_due(alias)


@shared_task(name="ems.purge", ignore_result=True, expires=EVERY["purge"])
def purge(using: str | None = None) -> None:
    with committing(database(using)) as alias:
        # Due once a night: each task of a minute does what it can in that time.
        maintenance.purge_if_due(alias, seconds=EVERY["purge"] - 10)
