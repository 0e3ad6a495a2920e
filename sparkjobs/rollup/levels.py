"""Adds up the minutes of the roll-up tables to hours, and hours to days.

An hour is added up again in the transaction that writes one of its minutes, so it is always the sum
of what its minutes say. Minutes are deleted earlier than hours and days: a sum never falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sparkjobs.database import Connection, fetch
from sparkjobs.instants import hour_of, stored
from sparkjobs.rollup.arrow import ArrowRows
from sparkjobs.rollup.histogram import merged
from sparkjobs.rollup.tables import (
    CONSUMPTION,
    ERRORS,
    LATENCY,
    TRAFFIC,
    Row,
    Rows,
    Table,
    upsert,
)

HOUR, DAY = 60, 24 * 60  # the grains, in minutes


@dataclass(frozen=True)
class Level:
    """How the rows of ``minutes`` become rows of ``sums``, one for each ``key``."""

    minutes: Table
    key: tuple[str, ...]
    add: tuple[str, ...] = ()
    highest: tuple[str, ...] = ()
    mean: str = ""  # weighted by ``messages``
    histogram: str = ""

    @property
    def sums(self) -> Table:
        figures = (*self.add, *self.highest, *filter(None, (self.mean, self.histogram)))
        name = f"{self.minutes.name}_level"
        basis = "messages" if self.mean else ""
        grows = bool(self.add) and not basis
        return Table(name, ("grain", "start", *self.key), figures, grows=grows, basis=basis)


LEVELS = (
    Level(TRAFFIC, ("partition_id",), add=("messages", "bytes", "delayed")),
    Level(
        CONSUMPTION,
        ("group_id", "client_id", "thread"),
        add=(
            *("deliveries", "consumed", "failed", "retried", "dead", "lost", "missing", "passed"),
            "busy_seconds",
        ),
        highest=("longest_seconds",),
    ),
    Level(
        LATENCY,
        ("group_id", "leg"),
        add=("messages",),
        highest=("worst",),
        mean="mean",
        histogram="histogram",
    ),
    Level(ERRORS, ("group_id", "error_class"), add=("failed", "dead")),
)
OF_TABLE: Mapping[str, Level] = {level.minutes.name: level for level in LEVELS}


def add_up(connection: Connection, table: Table, rows: Rows) -> None:
    """Add up the hours and days of these rows of a table, inside the caller's transaction."""
    level = OF_TABLE.get(table.name)
    if level is None:
        return
    if isinstance(rows, ArrowRows):
        minutes = rows.distinct("minute")
    else:
        minutes = {row["minute"] for row in rows}
    hours = {hour_of(minute) for minute in minutes}
    for hour in sorted(hours):
        rows = _rows(connection, level, level.minutes.name, "minute", hour, HOUR)
        upsert(connection, level.sums, rows)
    for day in sorted({hour.replace(hour=0) for hour in hours}):
        upsert(connection, level.sums, _rows(connection, level, level.sums.name, "start", day, DAY))


def _rows(
    connection: Connection, level: Level, table: str, column: str, start: datetime, grain: int
) -> list[Row]:
    """Return the sums of what ``table`` has from ``start`` on, for so many minutes."""
    where = f"`{column}` >= %s AND `{column}` < %s"
    values = [stored(start), stored(start + timedelta(minutes=grain))]
    if grain == DAY:
        where, values = f"`grain` = %s AND {where}", [HOUR, *values]
    key = ", ".join(f"`{name}`" for name in level.key)
    sums = [f"SUM(`{name}`)" for name in level.add] + [f"MAX(`{name}`)" for name in level.highest]
    if level.mean:
        sums.append(f"SUM(`{level.mean}` * `messages`) / SUM(`messages`)")
    names = (*level.key, *level.add, *level.highest, *filter(None, [level.mean]))
    found = fetch(
        connection,
        f"SELECT {key}, {', '.join(sums)} FROM `{table}` WHERE {where} GROUP BY {key}",  # noqa: S608
        values,
    )
    texts = _histograms(connection, level, table, where, values) if level.histogram else {}
    return [
        {
            **dict(zip(names, row, strict=True)),
            **({level.histogram: texts[row[: len(level.key)]]} if level.histogram else {}),
            "grain": grain,
            "start": start,
        }
        for row in found
    ]


def _histograms(
    connection: Connection, level: Level, table: str, where: str, values: Sequence[Any]
) -> dict[tuple[Any, ...], str]:
    """Return the merged histogram of each key."""
    key = ", ".join(f"`{name}`" for name in level.key)
    rows = fetch(
        connection,
        f"SELECT {key}, `{level.histogram}` FROM `{table}` WHERE {where}",  # noqa: S608
        values,
    )
    texts: dict[tuple[Any, ...], list[str]] = {}
    for *place, text in rows:
        texts.setdefault(tuple(place), []).append(text)
    return {place: merged(found) for place, found in texts.items()}
