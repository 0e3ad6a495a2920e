"""Reads what a MySQL or MariaDB server says of itself, for the system checks and the doctor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connections
from django.db.models import Model

from streams.models.fields import NameField


class Server:
    """What the server behind an alias says, on a connection of this project."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._connection: Any = connections[alias]

    @property
    def name(self) -> str:
        """Return the version as the server names it, such as "10.11.6-MariaDB"."""
        return str(self._connection.mysql_server_info)

    @property
    def is_mariadb(self) -> bool:
        return bool(self._connection.mysql_is_mariadb)

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(self._connection.mysql_version)

    def without_row_locks(self) -> str:
        """Return what the server is, if it speaks MySQL's protocol and cannot lock as EMS must.

        TiDB takes SKIP LOCKED and locks nothing; old versions of Vitess refuse it.
        """
        self._connection.ensure_connection()
        greeting = self._connection.connection.get_server_info()
        told = f"{greeting} {self.name} {self.variable('version_comment')}".lower()
        for kind in ("TiDB", "OceanBase"):
            if kind.lower() in told:
                return kind
        if "vitess" in told or "planetscale" in told:
            try:
                self.rows("SELECT 1 FROM (SELECT 1) AS `probe` FOR UPDATE SKIP LOCKED")
            except DatabaseError:
                return "Vitess"
        return ""

    def variable(self, name: str) -> Any:
        ((value,),) = self.rows(f"SELECT @@{name}")
        return value

    def variables(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of the global variables ``names`` that this server has."""
        rows = self.rows("SHOW GLOBAL VARIABLES WHERE `Variable_name` IN %s", tuple(names))
        return {name.lower(): str(value) for name, value in rows}

    def statuses(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of the status values ``names`` that this server has."""
        rows = self.rows("SHOW GLOBAL STATUS WHERE `Variable_name` IN %s", tuple(names))
        return {name.lower(): str(value) for name, value in rows}

    def status(self, name: str) -> int | None:
        """Return the status counter ``name``; None if this server does not have it."""
        found = self.rows("SHOW GLOBAL STATUS LIKE %s", name)
        return int(found[0][1]) if found else None

    @property
    def isolation(self) -> str:
        return str(self.variable("tx_isolation" if self.is_mariadb else "transaction_isolation"))

    @property
    def binlog_format(self) -> str:
        """Return the binlog_format of this session; empty if the server has no binary log."""
        return str(self.variable("binlog_format")) if self.variable("GLOBAL.log_bin") else ""

    def knows_zone(self, name: str) -> bool:
        """Tell whether the server has loaded the time zone ``name``."""
        ((converted,),) = self.rows("SELECT CONVERT_TZ('2000-01-01', 'UTC', %s)", name)
        return converted is not None

    def tables_not_innodb(self) -> list[str]:
        rows = self.rows(
            "SELECT `TABLE_NAME` FROM information_schema.TABLES WHERE `TABLE_SCHEMA` = DATABASE()"
            " AND `TABLE_NAME` IN %s AND `ENGINE` <> 'InnoDB' ORDER BY 1",
            tuple(tables()),
        )
        return [table for (table,) in rows]

    def columns_not_utf8mb4(self) -> list[str]:
        return self._columns("`CHARACTER_SET_NAME` <> 'utf8mb4'")

    def names_not_binary(self) -> list[str]:
        """Return name and key columns for which "Mail" equals "mail", or "mail " equals "mail"."""
        exact = {
            f"{model._meta.db_table}.{field.column}"
            for model in models()
            for field in model._meta.get_fields()
            if isinstance(field, NameField)
        }
        loose = self._columns("`COLLATION_NAME` <> 'utf8mb4_bin'")
        return [column for column in loose if column in exact]

    def indexes(self) -> dict[tuple[str, str], bool]:
        """Return table and name of each index, and whether the optimizer may use it."""
        usable = "`IGNORED` = 'NO'" if self.is_mariadb else "`IS_VISIBLE` = 'YES'"
        rows = self.rows(
            f"SELECT DISTINCT `TABLE_NAME`, `INDEX_NAME`, {usable}"  # noqa: S608
            " FROM information_schema.STATISTICS WHERE `TABLE_SCHEMA` = DATABASE()"
            " AND `TABLE_NAME` IN %s",
            tuple(tables()),
        )
        return {(table, index): bool(visible) for table, index, visible in rows}

    def _columns(self, condition: str) -> list[str]:
        rows = self.rows(
            "SELECT `TABLE_NAME`, `COLUMN_NAME` FROM information_schema.COLUMNS"  # noqa: S608
            f" WHERE `TABLE_SCHEMA` = DATABASE() AND `TABLE_NAME` IN %s AND {condition}"
            " ORDER BY 1, 2",
            tuple(tables()),
        )
        return [f"{table}.{column}" for table, column in rows]

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())


def models() -> list[type[Model]]:
    return list(apps.get_app_config("ems").get_models())


def tables() -> list[str]:
    """Return the names of the tables of EMS."""
    return [model._meta.db_table for model in models()]


def table_sizes(alias: str) -> dict[str, int | None] | None:
    """Return the bytes of each table of EMS with its indexes, as the server estimates them now.

    None on SQLite.
    """
    if connections[alias].vendor != "mysql":
        return None
    server = Server(alias)
    if not server.is_mariadb:
        # MySQL keeps its answers for a day: a table that has grown since would still be small.
        with connections[alias].cursor() as cursor:
            cursor.execute("SET SESSION information_schema_stats_expiry = 0")
    found = server.rows(
        "SELECT TABLE_NAME, DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN %s",
        tuple(tables()),
    )
    return {name: None if size is None else int(size) for name, size in found}


def missing_tables(alias: str) -> list[str]:
    """Return the tables of EMS that do not exist on ``alias``."""
    there = set(connections[alias].introspection.table_names())
    return [table for table in tables() if table not in there]
