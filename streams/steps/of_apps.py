"""Runs the steps of other apps, such as the monitoring: ``ems_steps`` of their AppConfig."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.apps import apps
from django.db import Error, connections

from streams.logs import event

logger = logging.getLogger("streams.maintenance")


# Seconds in which steps begin: the sweep runs in the same thread, and a step may take some seconds.
BEGIN_SECONDS = 5.0

# By alias: the step that comes first the next time, because there was no time left for it.
_left_out: dict[str, str] = {}


def run_steps_of_apps(using: str, ends: float | None = None) -> None:
    """Run each step once, as far as there is time; who was left out comes first the next time.

    A step tells by its row of ``ems_step`` whether it is due. At least one is run, and another one
    only before ``ends``, of the monotonic clock, by default in BEGIN_SECONDS.

    An error of one ends neither the others nor the caller: it is logged, and the step is tried
    again when it is due the next time.
    """
    limit = time.monotonic() + BEGIN_SECONDS if ends is None else ends
    steps = steps_of_apps()
    names = list(steps)
    first = _left_out.pop(using, "")
    at = names.index(first) if first in steps else 0
    for number, name in enumerate([*names[at:], *names[:at]]):
        if number and time.monotonic() >= limit:
            _left_out[using] = name
            return
        _run(name, steps[name], using)


def _run(name: str, step: Callable[[str], object], using: str) -> None:
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
