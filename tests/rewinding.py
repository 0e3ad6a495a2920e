"""Puts the tables of EMS back to an earlier state, as a failover does that loses commits."""

from __future__ import annotations

from typing import Any

from django.db import models, transaction

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
