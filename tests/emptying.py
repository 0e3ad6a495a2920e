"""Deletes what a test has committed, more quickly than Django's flush does.

A flush deletes from 40 tables and makes every content type and permission anew: 43 ms on MySQL
and MariaDB, 16 ms on SQLite, after each of thousands of tests. Here one statement finds the tables
that have rows (half a millisecond), only these are emptied, and permissions stay as they are.
"""

from __future__ import annotations

from django.core.management.color import no_style
from django.db import DatabaseError, connections
from django.test import TransactionTestCase

from tests.settings import FOLDER

# Tables that migrate has written, and that no test leaves changed.
KEPT = {"django_content_type", "auth_permission"}

_tables: dict[str, list[str]] = {}


def empty(alias: str) -> None:
    """Delete every row of the test database, except in the tables KEPT."""
    connection = connections[alias]
    written = _written(alias)
    if written:
        statements = connection.ops.sql_flush(no_style(), written)
        connection.ops.execute_sql_flush(statements)


def _written(alias: str) -> list[str]:
    """Return the tables that have rows."""
    if alias not in _tables:
        _tables[alias] = _existing(alias)
    try:
        return _with_rows(alias, _tables[alias])
    except DatabaseError:  # a test has dropped one, or has made it again
        return _with_rows(alias, _existing(alias))


def _existing(alias: str) -> list[str]:
    names = connections[alias].introspection.django_table_names(
        only_existing=True, include_views=False
    )
    return sorted(set(names) - KEPT)


def _with_rows(alias: str, tables: list[str]) -> list[str]:
    connection = connections[alias]
    quote = connection.ops.quote_name
    one = "SELECT '{0}' WHERE EXISTS (SELECT 1 FROM {1})"
    sql = " UNION ALL ".join(one.format(name, quote(name)) for name in tables)
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [name for (name,) in cursor.fetchall()]


def teardown(case: TransactionTestCase) -> None:
    """Replace ``TransactionTestCase._fixture_teardown``."""
    from streams.database import remembered

    for alias in case._databases_names(include_mirrors=False):  # type: ignore[attr-defined]
        empty(alias)
    # What was read of rows that are deleted now. After Django's flush post_migrate does it.
    remembered.forget()
    # Files that say how far the logs had come: another test need not find them.
    for file in (FOLDER / "state").glob("*.ends"):
        file.unlink(missing_ok=True)
