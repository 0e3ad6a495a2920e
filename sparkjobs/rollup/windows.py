"""A job as a series of windows, each computed, then written as one transaction with its run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkjobs.database import Connection, transaction
from sparkjobs.rollup.runs import Run, prune
from sparkjobs.rollup.tables import Row, Table, upsert

# The lock that lets one run of these jobs be at work.
ROLL_UP = "rollup"

# Tells whoever looks on how far it is.
Say = Callable[[str], None]


@dataclass
class Window:
    """What a window has computed.

    ``values`` go into the row of its run. ``move`` notes, inside the transaction, where the next
    window begins. ``more``: there is another window already.
    """

    about: str
    figures: Sequence[tuple[Table, Sequence[Row]]] = ()
    values: dict[str, Any] = field(default_factory=dict)
    move: Callable[[Connection], None] = lambda connection: None
    more: bool = False


def roll_up(job: str, connection: Connection, step: Callable[[], Window], say: Say) -> None:
    """Compute window after window until there is no more.

    Killed at any point, it leaves either all rows of a window and its run as done, or none.
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


def write(connection: Connection, run: Run, window: Window) -> None:
    """All that the window has computed, or nothing."""
    with transaction(connection):
        rows = sum(upsert(connection, table, figures) for table, figures in window.figures)
        window.move(connection)
        run.done(connection, rows=rows, **window.values)
