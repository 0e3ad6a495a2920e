"""Makes many rows quickly: the server copies those that are there, INSERT … SELECT."""

from __future__ import annotations

from typing import Any

from tests.lab.benchmarks.server import execute

# Rows of one statement: its undo log stays small.
AT_ONCE = 500_000
PATTERN = 1_000  # messages that are sent to the server; all others are copies


def columns(plain: Any, table: str) -> list[str]:
    """Return the columns that a copy of a row has: not the id, which the server gives."""
    return [
        name
        for (name,) in execute(
            plain,
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
            f" AND table_name = '{table}' AND column_name <> 'id'"
            " AND COALESCE(generation_expression, '') = ''"
            " ORDER BY ordinal_position",
        )
    ]


def copy(plain: Any, table: str, where: str, **changed: str) -> None:
    """Insert a copy of each row of ``table`` that matches ``where``, with some columns changed.

    ``changed`` has an SQL expression for each of these columns; in it and in ``where`` the table
    is ``r``.
    """
    names = columns(plain, table)
    chosen = ", ".join(changed.get(name, f"r.`{name}`") for name in names)
    listed = ", ".join(f"`{name}`" for name in names)
    execute(plain, f"INSERT INTO `{table}` ({listed}) SELECT {chosen} FROM `{table}` r {where}")


def fill(plain: Any, partition: int, first: int, rows: int, *, size: int) -> None:
    """Append ``rows`` messages of ``size`` bytes, which have the offsets from ``first`` on."""
    pattern = min(PATTERN, rows)
    values = ",".join(
        f"({partition}, {first + n}, '1970-01-01', '', REPEAT('x', {size}), 'text', {size},"
        " 'bench', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
        for n in range(pattern)
    )
    execute(
        plain,
        "INSERT INTO ems_msg (partition_id, `offset`, due_at, tag, body, body_type, size,"
        f" producer, created_at, sequenced_at) VALUES {values}",
    )
    made = pattern
    while made < rows:
        count = min(made, rows - made, AT_ONCE)
        where = f"r.partition_id = {partition} AND r.`offset` >= {first}"
        where += f" AND r.`offset` < {first + count}"
        copy(plain, "ems_msg", f"WHERE {where}", offset=f"r.`offset` + {made}")
        made += count
    execute(plain, f"UPDATE ems_partition SET next_offset = {first + rows} WHERE id = {partition}")
