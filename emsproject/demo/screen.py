"""Shows the demo: bars on a terminal, lines elsewhere, and a table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from emsproject.demo.audit import Audit
from emsproject.demo.tally import Tally, group_report

LINE_SECONDS = 2.0

INTRODUCTION = """\
{flights:,} flights out of New York City in January 2013. Each is saved, and its event sent, in one
transaction on SQLite; those that were cancelled are rolled back. Three groups, each a process of
its own, get every event:
  board    handles them in batches
  billing  fails for flights two hours late or more, until the third attempt
  customs  fails for flights to the Virgin Islands, and gives up after two retries
"""


def introduce(console: Console, flights: int) -> None:
    console.print(INTRODUCTION.format(flights=flights), soft_wrap=True)


class Display(Protocol):
    def show(self, tally: Tally) -> None: ...


class Bars:
    """Bars on a terminal."""

    def __init__(self, progress: Progress, tally: Tally, total: int) -> None:
        self._progress = progress
        names = ("sent", *tally.groups)
        self._bars = {name: progress.add_task(name, total=total) for name in names}

    def show(self, tally: Tally) -> None:
        self._progress.update(self._bars["sent"], completed=tally.sent)
        for group in tally.groups:
            self._progress.update(self._bars[group], completed=tally.finished(group))


class ScreenLines:
    """One line every LINE_SECONDS, to a file or a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._next = self._started

    def show(self, tally: Tally) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LINE_SECONDS
        counts = {"sent": tally.sent, **{group: tally.finished(group) for group in tally.groups}}
        text = "   ".join(f"{name} {count:6,}" for name, count in counts.items())
        self._console.print(f"{now - self._started:5.1f} s   {text}", soft_wrap=True)


@contextmanager
def display(console: Console, tally: Tally, total: int) -> Iterator[Display]:
    if not console.is_terminal:
        yield ScreenLines(console)
        return
    columns = (TextColumn("  {task.description:8}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        yield Bars(progress, tally, total)


def report(console: Console, tally: Tally, audit: Audit, *, send_seconds: float) -> None:
    """Print the final table and the verdict of the audit."""
    table = Table(box=box.SIMPLE)
    for heading in ("", "messages", "retries", "dead letters", "messages/s"):
        table.add_column(heading, justify="right" if heading else "left")
    rate = _rate(tally.sent + tally.rolled_back, send_seconds)
    table.add_row("sent", f"{tally.sent:,}", "", "", rate)
    table.add_row("rolled back", f"{tally.rolled_back:,}", "", "", "", end_section=True)
    for group in tally.groups:
        done = group_report(group)
        table.add_row(
            group,
            f"{tally.handled.get(group, 0):,}",
            f"{done.retries:,}",
            f"{tally.dead.get(group, 0):,}",
            _rate(tally.finished(group), done.seconds),
        )
    console.print(table)
    colour = "green" if audit.clean else "red"
    verdict = f"{audit.lost:,} lost, {audit.duplicated:,} duplicated"
    groups, rolled_back = len(tally.groups), tally.rolled_back
    subject = f"{tally.sent:,} messages x {groups} groups, and {rolled_back:,} rolled back"
    console.print(f"Audit of {subject}: [bold {colour}]{verdict}[/]", soft_wrap=True)
    for wrong in audit.wrong:
        console.print(f"  {wrong}", style=colour, markup=False, soft_wrap=True)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}" if seconds else "–"
