"""Routes the tables of EMS in projects that keep them on an alias other than ``default``."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from streams.conf import database
from streams.sharding import aliases

LABELS = frozenset({"ems", "ems_monitoring"})


class StreamsRouter:
    """A router for the admin pages and the migrations of EMS, by the aliases of topics.

    EMS itself names the alias in every query, so its own queries do not need the router.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return database() if model._meta.app_label in LABELS else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db in aliases() if app_label in LABELS else None
