"""Shows the log of EMS in the terminal of a command, unless the project shows it already."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.color import supports_color

from streams.logs import ConsoleFormatter, JsonFormatter

TEXT, JSON = "text", "json"

LEVELS = {0: logging.WARNING, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}


@contextmanager
def console(stream: Any, form: str, *, verbosity: int, colored: bool | None) -> Iterator[bool]:
    """Write the log of EMS to ``stream`` inside the block; tell whether this was done.

    It is not if the project has a handler for it: that one writes the records, where and how the
    project wants them. ``verbosity`` 0 shows warnings, 1 also what starts and stops and how groups
    do, 2 a line for each message, 3 all. ``colored`` None: where the terminal can.
    """
    root, messages = logging.getLogger("streams"), logging.getLogger("streams.messages")
    levels = root.level, messages.level
    handler = None if _is_configured() else logging.StreamHandler(stream)
    if handler:
        colored = _supports_color() if colored is None else colored
        handler.setFormatter(JsonFormatter() if form == JSON else ConsoleFormatter(colored=colored))
        root.addHandler(handler)
        if not root.level:
            root.setLevel(LEVELS[verbosity])
    # A level that the project has set stays.
    if verbosity > 1 and not messages.level:
        messages.setLevel(logging.DEBUG)
    try:
        yield handler is not None
    finally:
        if handler:
            root.removeHandler(handler)
        root.setLevel(levels[0])
        messages.setLevel(levels[1])


def _is_configured() -> bool:
    """Tell whether the project has a handler for any record of EMS."""
    if logging.getLogger("streams").hasHandlers():
        return True
    loggers = logging.root.manager.loggerDict.items()
    return any(
        name.startswith("streams.") and isinstance(logger, logging.Logger) and logger.handlers
        for name, logger in loggers
    )


def _supports_color() -> bool:
    # https://no-color.org: any text but an empty one.
    return not os.environ.get("NO_COLOR") and bool(supports_color())
