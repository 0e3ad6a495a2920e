"""Runs the raw statements of EMS, and holds what differs between MySQL and SQLite.

All raw statements are in this package. Each says what it does, the index that it needs and the
invariant that it keeps. Values are always parameters.

Why raw: a send and a pass of the sequencer are the hot paths, where the ORM costs more than the
statement; and the ORM has no index hints and no upserts with conditions. Backticks quote names on
MySQL, MariaDB and, as a documented compatibility, SQLite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.db import connections

MYSQL, SQLITE = "mysql", "sqlite"

NOW = {
    MYSQL: "UTC_TIMESTAMP(6)",
    SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')",
}
# The server's clock plus a parameter, see later().
LATER = {
    MYSQL: "UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND",
    SQLITE: "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s)",
}
USE_INBOX = {MYSQL: "FORCE INDEX (ems_msg_inbox)", SQLITE: "INDEXED BY ems_msg_inbox"}
USE_LETTERS = {
    MYSQL: "FORCE INDEX (ems_dead_waiting)",
    SQLITE: "INDEXED BY ems_dead_waiting",
}
USE_PRIMARY = {MYSQL: "FORCE INDEX (PRIMARY)", SQLITE: ""}
USE_OPEN = {MYSQL: "FORCE INDEX (ems_log_open)", SQLITE: "INDEXED BY ems_log_open"}
USE_RETRIES = {MYSQL: "FORCE INDEX (ems_retry_place)", SQLITE: ""}
LOCK = {MYSQL: "FOR UPDATE", SQLITE: ""}
SKIP_LOCKED = {MYSQL: "FOR UPDATE SKIP LOCKED", SQLITE: ""}
GREATEST = {MYSQL: "GREATEST", SQLITE: "MAX"}
LEAST = {MYSQL: "LEAST", SQLITE: "MIN"}
IF = {MYSQL: "IF", SQLITE: "IIF"}

IMMEDIATE = "1970-01-01 00:00:00"


def set_bits(vendor: str, value: str) -> str:
    """Return the number of bits that are set in ``value``, of at most 63; 0 for NULL."""
    if vendor == SQLITE:
        bits = " + ".join(f"(({value}) >> {at} & 1)" for at in range(63))
        return f"(CASE WHEN ({value}) IS NULL THEN 0 ELSE {bits} END)"
    return f"COALESCE(BIT_COUNT({value}), 0)"


def later(vendor: str, delay: timedelta) -> Any:
    """Return ``delay`` as the parameter of LATER."""
    if vendor == SQLITE:
        return f"{delay.total_seconds():+.6f} seconds"
    return delay // timedelta(microseconds=1)


def for_each_vendor(template: str) -> dict[str, str]:
    return {
        vendor: template.format(
            now=NOW[vendor],
            inbox=USE_INBOX[vendor],
            letters=USE_LETTERS[vendor],
            primary=USE_PRIMARY[vendor],
            open=USE_OPEN[vendor],
            retries=USE_RETRIES[vendor],
            skip_locked=SKIP_LOCKED[vendor],
            greatest=GREATEST[vendor],
            least=LEAST[vendor],
            iff=IF[vendor],
            lock=LOCK[vendor],
            immediate=f"'{IMMEDIATE}'",
        )
        for vendor in (MYSQL, SQLITE)
    }


def numbers(ids: Iterable[int]) -> str:
    return ",".join(f"{id_:d}" for id_ in ids)


# The most members of an IN list. MariaDB makes a join of one with 1,000, and then reads all entries
# of an index where it would have jumped from one partition to the next.
LIST = 500


def lists(ids: Iterable[int]) -> list[str]:
    """Return the ids as IN lists of at most LIST members; one empty list if there are none."""
    all_ids = list(ids)
    return [numbers(all_ids[at : at + LIST]) for at in range(0, len(all_ids) or 1, LIST)]


def delete_by_id(vendor: str, table: str, ids: Iterable[int], condition: str = "1 = 1") -> str:
    """Return the statement that deletes the rows ``ids`` by their primary key.

    By any other index, or by a scan, which a server prefers on a small table, it would wait for
    rows that others have locked. ``condition`` is checked again in each row: after a TRUNCATE an
    id may belong to another row.
    """
    which = f"`id` IN ({numbers(ids)}) AND {condition}"
    if vendor == SQLITE:
        return f"DELETE FROM `{table}` WHERE {which}"  # noqa: S608
    return f"DELETE `{table}` FROM `{table}` {USE_PRIMARY[vendor]} WHERE {which}"


def placeholders(values: Sequence[Any]) -> str:
    """Return the placeholders of an IN for ``values``, without parentheses."""
    return ", ".join(["%s"] * len(values))


def insert(using: str, statement: str, parameters: Iterable[Any]) -> int:
    """Run one INSERT of one row on ``using``; return its id."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, tuple(parameters))
        return int(cursor.lastrowid)


def execute(using: str, statement: str, parameters: Iterable[Any] = ()) -> int:
    """Run one statement on ``using``; return the number of rows that matched."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, tuple(parameters))
        return int(cursor.rowcount)


def fetch(using: str, statement: str, parameters: Iterable[Any] = ()) -> list[Any]:
    """Run one SELECT on ``using``; return its rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(statement, tuple(parameters))
        return list(cursor.fetchall())
