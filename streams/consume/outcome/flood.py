"""Limits how many failures of a group come into the log in a second."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass

from streams.logs import event

logger = logging.getLogger("streams.handling")

# The most records of failures of a group in a second. A handler that fails at once for every
# message could otherwise fill a disk.
PER_SECOND = 10
WINDOW_SECONDS = 1.0

# Topic and group.
Name = tuple[str, str]


@dataclass
class Window:
    """The failures of a group in one second."""

    began: float
    written: int = 0
    withheld: int = 0
    dead: int = 0  # of those withheld


class Flood:
    """A limit of PER_SECOND records a second for each group; it says how many it withheld."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: defaultdict[Name, Window] = defaultdict(lambda: Window(time.monotonic()))

    def admits(self, topic: str, group: str, *, dead: bool = False) -> bool:
        """Tell whether to write a record of one more failure of the group."""
        ended = None
        now = time.monotonic()
        with self._lock:
            window = self._windows[topic, group]
            if now >= window.began + WINDOW_SECONDS:
                ended, window = window, Window(now)
                self._windows[topic, group] = window
            admitted = window.written < PER_SECOND
            window.written += admitted
            window.withheld += not admitted
            window.dead += dead and not admitted
        if ended:
            _say((topic, group), ended)
        return admitted

    def say_withheld(self, *, at_once: bool = False) -> None:
        """Write how many records were withheld in the seconds that have ended; or in all."""
        limit = time.monotonic() - (0.0 if at_once else WINDOW_SECONDS)
        with self._lock:
            ended = {name: w for name, w in self._windows.items() if w.began <= limit}
            for name in ended:
                del self._windows[name]
        for name, window in ended.items():
            _say(name, window)


def _say(name: Name, window: Window) -> None:
    if not window.withheld:
        return
    topic, group = name
    logger.log(
        logging.ERROR if window.dead else logging.WARNING,
        "%s on %s: and %d more failures in this second, of which %d are dead letters now",
        *(group, topic, window.withheld, window.dead),
        extra=event(
            "failures.withheld",
            topic=topic,
            group=group,
            withheld=window.withheld,
            dead=window.dead,
        ),
    )


flood = Flood()
