"""Writes a database as SQL, and reads it: ``tests/upgrades/0.1.0/mysql.sql`` and its neighbours.

It is not the dump of a client program, since MySQL's and MariaDB's differ, and a test needs none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

HERE = Path(__file__).resolve().parent
END = ";\n"
ESCAPED = str.maketrans(
    {"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\0": r"\0", "\x1a": r"\Z"}
)


def releases() -> list[str]:
    """Return the releases whose tables are kept, the oldest first."""
    found = (path.name for path in HERE.iterdir() if path.name[0].isdigit())
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")])


def path_of(release: str, vendor: str) -> Path:
    return HERE / release / f"{vendor}.sql"


def write(connection: BaseDatabaseWrapper, path: Path) -> None:
    """Write all tables of this connection, with their rows."""
    path.parent.mkdir(exist_ok=True)
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        text = "".join(f"{line}\n" for line in connection.connection.iterdump())
    else:
        text = "".join(f"{statement}{END}" for statement in _statements(connection))
    # Tracebacks name the folder of the checkout.
    path.write_text(text.replace(str(HERE.parent.parent), "/srv/shop"))


def load(path: Path, connection: BaseDatabaseWrapper) -> None:
    """Read such a file into the empty database of this connection."""
    text = path.read_text()
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        with closing(sqlite3.connect(connection.settings_dict["NAME"])) as file:
            file.executescript(text)
        return
    with connection.cursor() as cursor:
        for statement in text.removesuffix(END).split(END):
            cursor.execute(statement)


def _statements(connection: BaseDatabaseWrapper) -> Iterator[str]:
    yield "SET foreign_key_checks = 0"
    with connection.cursor() as cursor:
        for table in sorted(connection.introspection.table_names(cursor)):
            cursor.execute(f"SHOW CREATE TABLE `{table}`")
            yield cursor.fetchone()[1]
            cursor.execute(
                "SELECT `COLUMN_NAME` FROM information_schema.COLUMNS WHERE `TABLE_SCHEMA` ="
                " DATABASE() AND `TABLE_NAME` = %s AND `EXTRA` NOT LIKE '%%GENERATED%%'"
                " ORDER BY `ORDINAL_POSITION`",
                [table],
            )
            columns = ", ".join(f"`{name}`" for (name,) in cursor.fetchall())
            cursor.execute(f"SELECT {columns} FROM `{table}` ORDER BY 1")
            for row in cursor.fetchall():
                values = ", ".join(map(_literal, row))
                yield f"INSERT INTO `{table}` ({columns}) VALUES ({values})"
    yield "SET foreign_key_checks = 1"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int | float | Decimal):
        return str(int(value) if isinstance(value, bool) else value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}" if value else "''"
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    return f"'{str(value).translate(ESCAPED)}'"
