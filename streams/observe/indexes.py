"""Compares the indexes of the tables with those that the statements of EMS need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connections

from streams.observe.diagnoses import ERROR, OK, Diagnosis
from streams.observe.mysql_server import Server, models, tables


def indexes(using: str) -> Iterator[Diagnosis]:
    """Yield the indexes that are missing or invisible, with the statement that mends it."""
    connection: Any = connections[using]
    there = _indexes(using)
    sound = True
    for model in models():
        table = model._meta.db_table
        for index in (*model._meta.constraints, *model._meta.indexes):
            visible = there.get((table, index.name))
            if visible is None:
                statement = str(index.create_sql(model, connection.schema_editor()))
                text = f"{table} has no index {index.name}: statements read the whole table."
            elif not visible:
                switch = "NOT IGNORED" if connection.mysql_is_mariadb else "VISIBLE"
                statement = f"ALTER TABLE `{table}` ALTER INDEX `{index.name}` {switch}"
                text = f"The index {index.name} of {table} is invisible: statements fail or scan."
            else:
                continue
            sound = False
            yield Diagnosis(ERROR, "index", text, f"{statement};")
    if sound:
        yield Diagnosis(OK, "index", "All indexes are there.")


def _indexes(using: str) -> dict[tuple[str, str], bool]:
    """Return table and name of each index, and whether the server may use it."""
    connection: Any = connections[using]
    if connection.vendor == "mysql":
        return Server(using).indexes()
    with connection.cursor() as cursor:
        return {
            (table, name): True
            for table in tables()
            for name in connection.introspection.get_constraints(cursor, table)
        }
