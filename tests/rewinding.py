"""Puts the tables of EMS back to an earlier state, as a failover and a restored backup do."""

from __future__ import annotations

from typing import Any

from django.db import connection, models, transaction

from streams.database.retrying import retrying
from streams.models import Cursor, Delivery, Message, Partition, RetryMessage, Rewind

TABLES: tuple[type[models.Model], ...] = (
    *(Partition, Message, Cursor, Delivery, RetryMessage, Rewind),
)


class Replica:
    """Has the rows of this moment. ``promote()`` makes them those of the database again."""

    def __init__(self) -> None:
        self._rows: dict[type[models.Model], list[dict[str, Any]]] = {
            table: list(table._default_manager.values()) for table in TABLES
        }

    def promote(self) -> None:
        """Lose what was committed since, in one transaction."""
        retrying(self._write, "default")

    def _write(self) -> None:
        with transaction.atomic():
            # Locked as EMS does: partitions first.
            list(Partition.objects.select_for_update().order_by("pk"))
            for table, rows in self._rows.items():
                kept = [row["id"] for row in rows]
                lost = table._default_manager.exclude(pk__in=kept)
                if lost.exists():  # a test that empties ems_partition makes EMS forget its logs
                    lost.delete()
                for row in rows:
                    table._default_manager.update_or_create(pk=row["id"], defaults=row)


class Backup:
    """Has the tables of EMS of this moment as statements, as a dump by mysqldump has them.

    ``restore()`` drops the tables and makes them again. Needs MySQL or MariaDB, and nobody who
    works on the tables.
    """

    def __init__(self) -> None:
        self._tables: list[tuple[str, str, list[str], list[tuple[Any, ...]]]] = []
        with connection.cursor() as cursor:
            cursor.execute("SHOW TABLES LIKE 'ems\\_%%'")
            for (name,) in cursor.fetchall():
                cursor.execute(f"SHOW CREATE TABLE `{name}`")
                create = cursor.fetchone()[1]
                cursor.execute(f"SHOW COLUMNS FROM `{name}` WHERE Extra NOT LIKE '%%GENERATED'")
                columns = [f"`{row[0]}`" for row in cursor.fetchall()]
                cursor.execute(f"SELECT {', '.join(columns)} FROM `{name}`")
                self._tables.append((name, create, columns, cursor.fetchall()))

    def restore(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET foreign_key_checks = 0")
            for name, create, columns, rows in self._tables:
                cursor.execute(f"DROP TABLE `{name}`")
                cursor.execute(create.replace("%", "%%"), [])
                insert = f"INSERT INTO `{name}` ({', '.join(columns)}) VALUES ({{}})"
                cursor.executemany(insert.format(", ".join(["%s"] * len(columns))), rows)
            cursor.execute("SET foreign_key_checks = 1")
