"""Writes the roll-up tables: rows with absolute values, upserted from Arrow on the driver.

The rows of a window and the row of its run are one transaction (runs.py). A second run over the
same window writes the same rows. A figure never falls: a window that is rolled up again after a
part of it was purged must not replace what was counted before the purge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import Connection, execute, fetch, vendor_of
from sparkjobs.instants import stored
from sparkjobs.rollup.arrow import ArrowRows

ROWS_PER_STATEMENT = 500

Row = Mapping[str, Any]
Rows = Sequence[Row] | ArrowRows

GREATEST = {MYSQL: "GREATEST", SQLITE: "MAX"}
IF = {MYSQL: "IF", SQLITE: "IIF"}
NEW = {MYSQL: "VALUES(`{0}`)", SQLITE: "excluded.`{0}`"}


@dataclass(frozen=True)
class Table:
    """One roll-up table: the columns of its unique key, and the figures.

    With ``grows``, a figure is only replaced by a larger one. With ``basis``, the name of a
    figure, all figures are replaced together, if the new basis is not smaller. With neither, the
    newest figures replace the old ones.

    With ``ranking``, the first columns of the key, all rows that have these in common are replaced
    together, if the new ``basis`` is not smaller: no old row may stand beside a new one.
    """

    name: str
    key: tuple[str, ...]
    figures: tuple[str, ...]
    grows: bool = False
    basis: str = ""
    ranking: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.key + self.figures


TRAFFIC = Table(
    "ems_monitoring_traffic",
    ("partition_id", "first_offset"),
    ("minute", "end_offset", "messages", "bytes", "keys", "delayed"),
    basis="messages",
)
CONSUMPTION = Table(
    "ems_monitoring_consumption",
    ("group_id", "minute", "client_id", "thread"),
    (
        *("deliveries", "consumed", "failed", "retried", "dead", "lost", "missing", "passed"),
        *("busy_seconds", "longest_seconds"),
    ),
    grows=True,
)
LATENCY = Table(
    "ems_monitoring_latency",
    ("group_id", "minute", "leg"),
    ("messages", "mean", "p50", "p95", "p99", "worst", "histogram"),
    basis="messages",
)
ERRORS = Table(
    "ems_monitoring_error",
    ("group_id", "minute", "error_class"),
    ("failed", "dead"),
    grows=True,
)
# Old samples are thinned: an hour that is added up from fewer of them than before stays.
BACKLOG = Table(
    "ems_monitoring_backlog_level",
    ("grain", "start", "group_id"),
    ("samples", "behind", "least", "waiting", "dead", "age_seconds"),
    basis="samples",
)
HOT_KEYS = Table(
    "ems_monitoring_hot_key",
    ("topic_id", "hour", "place"),
    ("key", "messages", "bytes", "share", "total"),
    basis="total",
    ranking=("topic_id", "hour"),
)
TABLES = (TRAFFIC, CONSUMPTION, LATENCY, ERRORS, BACKLOG, HOT_KEYS)


def upsert(connection: Connection, table: Table, rows: Rows) -> int:
    """Write the rows inside the caller's transaction; return how many there are.

    They are written in the order of their keys, so that two writers cannot deadlock, and a few at
    a time.
    """
    if table.ranking:
        return _replace(connection, table, rows)
    for part in _parts(table, rows):
        _write(connection, table, part)
    return len(rows)


def _replace(connection: Connection, table: Table, rows: Rows) -> int:
    """Replace each ranking as a whole, unless the one that is there rests on more."""
    written = 0
    where = " AND ".join(f"`{column}` = %s" for column in table.ranking)

    def place(row: Row) -> tuple[Any, ...]:
        return tuple(stored(row[column]) for column in table.ranking)

    ordered = (row for part in _parts(table, rows) for row in part)
    for ranking, of_ranking in groupby(ordered, key=place):
        new = list(of_ranking)
        ((old,),) = fetch(
            connection,
            f"SELECT MAX(`{table.basis}`) FROM `{table.name}` WHERE {where}",  # noqa: S608
            ranking,
        )
        if old is not None and old > new[0][table.basis]:
            continue
        execute(connection, f"DELETE FROM `{table.name}` WHERE {where}", ranking)  # noqa: S608
        _write(connection, table, new)
        written += len(new)
    return written


def _parts(table: Table, rows: Rows) -> Iterator[Sequence[Row]]:
    if isinstance(rows, ArrowRows):
        yield from rows.parts(table.key, ROWS_PER_STATEMENT)
        return
    ordered = sorted(rows, key=lambda row: [row[column] for column in table.key])
    for start in range(0, len(ordered), ROWS_PER_STATEMENT):
        yield ordered[start : start + ROWS_PER_STATEMENT]


def _write(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    values = [stored(row[column]) for row in rows for column in table.columns]
    execute(connection, _statement(vendor_of(connection), table, len(rows)), values)


def _statement(vendor: str, table: Table, rows: int) -> str:
    names = ", ".join(f"`{column}`" for column in table.columns)
    places = ", ".join(["(" + ", ".join(["%s"] * len(table.columns)) + ")"] * rows)
    key = ", ".join(f"`{column}`" for column in table.key)
    on_duplicate = {
        MYSQL: "ON DUPLICATE KEY UPDATE",
        SQLITE: f"ON CONFLICT ({key}) DO UPDATE SET",
    }
    changes = ", ".join(_changes(vendor, table))
    return (
        f"INSERT INTO `{table.name}` ({names}) VALUES {places}"  # noqa: S608 - our names
        f" {on_duplicate[vendor]} {changes}"
    )


def _changes(vendor: str, table: Table) -> Iterable[str]:
    # The basis is assigned last: MySQL compares with the values that earlier assignments have set.
    for column in sorted(table.figures, key=lambda column: column == table.basis):
        old, new = f"`{table.name}`.`{column}`", NEW[vendor].format(column)
        if table.grows:
            value = f"{GREATEST[vendor]}({old}, {new})"
        elif table.basis:
            rests_on_more = f"{NEW[vendor].format(table.basis)} >= `{table.name}`.`{table.basis}`"
            value = f"{IF[vendor]}({rests_on_more}, {new}, {old})"
        else:
            value = new
        yield f"`{column}` = {value}"
