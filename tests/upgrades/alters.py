"""Tells how a server changes a table for a migration: at once, beside others, or by a copy."""

from __future__ import annotations

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from streams.database.retrying import error_number

INSTANT, INPLACE, COPY, OTHER = "INSTANT", "INPLACE", "COPY", "other"
# The algorithm, or the lock, is not possible for this statement.
NOT_SUPPORTED = {1845, 1846}
LABELS = {"ems", "ems_monitoring", "ems_tasks"}


def how(statement: str, database: BaseDatabaseWrapper) -> str:
    """Run one statement by the quickest algorithm that the server takes; return which it is.

    INPLACE is one that lets others write meanwhile. What changes no table of before is OTHER.
    """
    words = statement.split()
    alters = words[:2] == ["ALTER", "TABLE"]
    indexes = words[0] in ("CREATE", "DROP") and "INDEX" in words[1:3]
    with database.cursor() as cursor:
        if alters or indexes:
            ways = [
                (INSTANT, ", ALGORITHM=INSTANT" if alters else None),
                (INPLACE, (", " if alters else " ") + "ALGORITHM=INPLACE"),
            ]
            for name, suffix in ways:
                if suffix is None:
                    continue
                lock = "" if name == INSTANT else (", " if alters else " ") + "LOCK=NONE"
                try:
                    cursor.execute(f"{statement.rstrip(';')}{suffix}{lock}")
                except OperationalError as error:
                    if error_number(error) not in NOT_SUPPORTED:
                        raise
                else:
                    return name
        cursor.execute(statement)
    return COPY if alters or indexes else OTHER


def table_of(statement: str) -> str:
    """Return the table that a statement changes."""
    names = statement.split("`")
    return (
        names[3]
        if statement.startswith(("CREATE INDEX", "CREATE UNIQUE", "DROP INDEX"))
        else names[1]
    )


def of_migrations(database: BaseDatabaseWrapper) -> list[tuple[str, str, str]]:
    """Run the migrations of EMS that are missing; return table, algorithm and statement of each."""
    executor = MigrationExecutor(database)
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] in LABELS]
    found = []
    for migration in executor.migration_plan(targets):
        if migration[0].app_label not in LABELS:
            continue
        found += [
            (table_of(statement), how(statement, database), statement)
            for statement in executor.loader.collect_sql([migration])
            if not statement.startswith("--")
        ]
    return found
