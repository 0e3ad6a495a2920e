"""Runs a job as a series of windows, each computed, then written with its run at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, transaction
from sparkjobs.rollup.levels import add_up
from sparkjobs.rollup.runs import MAX_ABOUT, Run, prune
from sparkjobs.rollup.tables import Rows, Table, upsert

# The name of the lock with which one run of these jobs works at a time.
ROLL_UP = "rollup"

# Is called with lines that say how far the job is.
Say = Callable[[str], None]


@dataclass
class Window:
    """What a window has computed.

    ``about`` and ``values`` go into the row of its run. ``move`` records, inside the transaction,
    where the next window begins. ``more`` says that there is another window already.
    """

    about: str
    figures: Sequence[tuple[Table, Rows]] = ()
    values: dict[str, Any] = field(default_factory=dict)
    move: Callable[[Connection], None] = lambda connection: None
    more: bool = False


def roll_up(job: str, connection: Connection, step: Callable[[], Window], say: Say) -> None:
    """Compute window after window until there is no more.

    If it is killed at any point, either all rows of a window are written and its run is done, or
    none are.
    """
    more = True
    while more:
        run = Run.begin(connection, job)
        try:
            window = step()
            write(connection, run, window)
        except BaseException as error:
            with contextlib.suppress(Exception):  # the first error is the one to be told
                run.failed(connection, error)
            raise
        say(f"{job}: {window.about}")
        more = window.more
    prune(connection)


def one_window(job: str, config: Config, step: Callable[[], Window]) -> Window:
    """Do a job that takes long as one window, and return it.

    No connection is held while it works: a server ends one that is silent for hours, and the
    window could not be written.
    """
    with connected(config) as connection:
        run = Run.begin(connection, job)
    try:
        window = step()
        with connected(config) as connection:
            write(connection, run, window)
    except BaseException as error:
        with contextlib.suppress(Exception), connected(config) as connection:
            run.failed(connection, error)
        raise
    return window


def write(connection: Connection, run: Run, window: Window) -> None:
    """Write all that the window has computed, or nothing."""
    with transaction(connection):
        rows = sum(upsert(connection, table, figures) for table, figures in window.figures)
        for table, figures in window.figures:
            add_up(connection, table, figures)
        window.move(connection)
        values = {"rows": rows, "about": window.about[:MAX_ABOUT], **window.values}
        run.done(connection, **values)
