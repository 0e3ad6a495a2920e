"""Tables that migrations have made, step by step, are those that the models describe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.db import connection, models
from django.db.backends.base.base import BaseDatabaseWrapper

pytestmark = pytest.mark.django_db(transaction=True)


def managed() -> list[type[models.Model]]:
    labels = {"ems", "ems_monitoring", "ems_tasks"}
    of_ems = [app for app in apps.get_app_configs() if app.label in labels]
    return [model for app in of_ems for model in app.get_models() if model._meta.managed]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[BaseDatabaseWrapper]:
    """Make a database without migrations: its tables are those of the models."""
    new = connection.copy("fresh")
    name = new.settings_dict["NAME"] = f"{connection.settings_dict['NAME']}_fresh"
    if connection.vendor == "sqlite":
        new.settings_dict["NAME"] = str(tmp_path / "fresh.sqlite3")  # closes, unlike :memory:
    else:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    try:
        with new.schema_editor(atomic=False) as editor:
            for model in managed():
                editor.create_model(model)
        yield new
    finally:
        new.close()
        if connection.vendor != "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE `{name}`")


def described(database: BaseDatabaseWrapper) -> dict[str, list[str]]:
    """Return what the server says of each table, in parts: columns may have another order."""
    with database.cursor() as cursor:
        tables = [
            name for name in database.introspection.table_names(cursor) if name.startswith("ems_")
        ]
        said = {}
        for table in tables:
            if database.vendor == "sqlite":
                cursor.execute("SELECT sql FROM sqlite_master WHERE tbl_name = %s", [table])
                texts = [sql.removesuffix(")") for (sql,) in cursor.fetchall() if sql]
            else:
                cursor.execute(f"SHOW CREATE TABLE `{table}`")
                texts = [cursor.fetchone()[1]]
            text = re.sub(r" AUTO_INCREMENT=\d+", "", "\n".join(texts))
            said[table] = sorted(re.split(r",?\s*\n\s*|, | \(", text))
    return said


def test_migrations_make_the_tables_of_the_models(fresh: BaseDatabaseWrapper) -> None:
    made, wanted = described(connection), described(fresh)
    assert made.keys() == wanted.keys() >= {model._meta.db_table for model in managed()}
    for table, parts in wanted.items():
        assert made[table] == parts
