"""Keeps the rows of a test's databases, and puts them back before each case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.core import mail
from django.db import connections, models, router, transaction

from streams.database import remembered

Rows = list[tuple[Any, ...]]


class World:
    """What a test has made so far: the rows on its aliases, and the mail that was sent.

    ``reset`` is called whenever they are put back, for what else the test keeps.
    """

    def __init__(self, aliases: Sequence[str], reset: Callable[[], object] | None) -> None:
        self._tables = [_Table(alias, model) for alias in aliases for model in _models(alias)]
        self._rows = [table.read() for table in self._tables]
        self._aliases = aliases
        self._mail = list(getattr(mail, "outbox", []))
        self._reset = reset

    def put_back(self) -> None:
        changed = [
            (table, rows)
            for table, rows in zip(self._tables, self._rows, strict=True)
            if table.read() != rows
        ]
        for alias in self._aliases:
            of_alias = [(table, rows) for table, rows in changed if table.alias == alias]
            if not of_alias:
                continue
            # Not in one transaction with the deletes: the checks can only be turned off outside.
            with connections[alias].constraint_checks_disabled(), transaction.atomic(using=alias):
                for table, rows in of_alias:
                    table.write(rows)
        remembered.forget()
        if hasattr(mail, "outbox"):
            mail.outbox[:] = self._mail
        if self._reset:
            self._reset()


class _Table:
    def __init__(self, alias: str, model: type[models.Model]) -> None:
        self.alias = alias
        quote = connections[alias].ops.quote_name
        fields = [f for f in model._meta.local_concrete_fields if not getattr(f, "generated", 0)]
        columns = [quote(str(field.column)) for field in fields]
        self._name = quote(model._meta.db_table)
        self._columns = ", ".join(columns)
        self._values = ", ".join(["%s"] * len(columns))
        # More than one where the key is a CompositePrimaryKey, which has no column of its own.
        self._key = ", ".join(quote(str(field.column)) for field in model._meta.pk_fields)

    def read(self) -> Rows:
        """Return the rows as the driver gives them, in the order of their keys."""
        sql = f"SELECT {self._columns} FROM {self._name} ORDER BY {self._key}"  # noqa: S608
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def write(self, rows: Rows) -> None:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(f"DELETE FROM {self._name}")  # noqa: S608
            if rows:
                values = f"({self._columns}) VALUES ({self._values})"
                cursor.executemany(f"INSERT INTO {self._name} {values}", rows)


def _models(alias: str) -> list[type[models.Model]]:
    """Return the models with a table on ``alias``, also those between many and many."""
    there = set(connections[alias].introspection.table_names())
    found = {
        model._meta.db_table: model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.can_migrate(alias) and router.allow_migrate_model(alias, model)
    }
    return [model for table, model in found.items() if table in there]
