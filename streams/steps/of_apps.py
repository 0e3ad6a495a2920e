"""Runs the steps of other apps, such as the monitoring: ``ems_steps`` of their AppConfig."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.apps import apps
from django.db import Error, connections

from streams.logs import event

logger = logging.getLogger("streams.maintenance")


def run_steps_of_apps(using: str) -> None:
    """Run each step that is due. A step tells by its row of ``ems_step`` whether it is due.

    An error of one ends neither the others nor the caller: it is logged, and the step is tried
    again when it is due the next time.
    """
    for name, step in steps_of_apps().items():
        try:
            step(using)
        except Exception as error:
            connections[using].close_if_unusable_or_obsolete()
            logger.warning(
                "The step %s failed: %s",
                *(name, error),
                exc_info=not isinstance(error, Error),
                extra=event("step.failed", step=name, database=using, error=type(error).__name__),
            )


def steps_of_apps() -> dict[str, Callable[[str], object]]:
    """Return the steps by name."""
    found: dict[str, Callable[[str], object]] = {}
    for config in apps.get_app_configs():
        if hasattr(config, "ems_steps"):
            found |= config.ems_steps()
    return found
