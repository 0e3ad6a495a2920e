"""Writes values as texts that are the same in two runs over the same messages.

The ids of new rows and the time of the call differ from run to run, and stand as what they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from django.apps import apps
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder

from streams.errors import storable

# In characters. A longer value is shown by its beginning, and compared by its SHA-256.
LONGEST_VALUE = 200
SHOWN_OF_LONG = 80

INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
NOW = "<now>"
# What stands for a row: id, order_id, order_ids.
OF_ID = re.compile(r"(.*?)_?ids?")


class Values:
    """Writes the values of one call: it knows which rows the call has inserted, and when it ran."""

    def __init__(self) -> None:
        # The clock of a database that gives milliseconds may be behind ours by one.
        self._since = datetime.now(UTC) - timedelta(milliseconds=1)
        self._zones = {UTC, ZoneInfo(settings.TIME_ZONE or "UTC")}
        self._rows: dict[int, dict[str, str]] = {}
        self._count: dict[str, int] = {}

    def inserted(self, table: str, ids: list[int]) -> None:
        """Note the ids that the database gave to new rows of ``table``."""
        for id_ in ids:
            self._count[table] = self._count.get(table, 0) + 1
            self._rows.setdefault(id_, {})[table] = f"<{table} {self._count[table]}>"

    def text(self, table: str, column: str, value: Any) -> str:
        """Return the text for a value of a column."""
        return cut(self._whole(table, column, value))

    def json(self, name: str, value: Any) -> str:
        """Return the text for a part of a JSON body, with the keys of objects in order."""
        steady = self._steady("", name, value)
        if isinstance(steady, str) and steady != value:
            return steady
        return cut(json.dumps(steady, sort_keys=True, ensure_ascii=False, cls=DjangoJSONEncoder))

    def _whole(self, table: str, column: str, value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bytes | bytearray | memoryview):
            return f"x'{bytes(value).hex()}'"
        steady = self._steady(table, column, value)
        if steady is not value:
            return str(steady)
        return repr(value) if isinstance(value, str) else str(value)

    def _steady(self, table: str, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): self._steady("", str(key), one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._steady(table, name, one) for one in value]
        if isinstance(value, datetime):
            return NOW if self._is_now(value) else value
        if isinstance(value, str) and INSTANT.fullmatch(value):
            try:
                return NOW if self._is_now(datetime.fromisoformat(value)) else value
            except ValueError:
                return value
        if isinstance(value, int | str) and not isinstance(value, bool):
            text = str(value)
            if text.isascii() and text.isdecimal():
                return self._row(table, name, int(text)) or value
        return value

    def _row(self, table: str, column: str, id_: int) -> str | None:
        """Return the new row that a value names, or None if the value is another number."""
        if not (rows := self._rows.get(id_)):
            return None
        known = named_tables()
        if (table, column) in known:
            return rows.get(known[table, column])
        if table in tables() or not (match := OF_ID.fullmatch(column.lower())):
            return None
        # A table without a model, or a field of a body: the table of a similar name, or the first.
        stem = match[1]
        return next((label for name, label in rows.items() if name.endswith(stem)), None) or next(
            iter(rows.values())
        )

    def _is_now(self, value: datetime) -> bool:
        zones = [None] if value.tzinfo else self._zones
        return any(
            self._since <= (value.replace(tzinfo=zone) if zone else value) <= datetime.now(UTC)
            for zone in zones
        )


@cache
def named_tables() -> dict[tuple[str, str], str]:
    """Return the table whose row a column names, by table and column of the project's models."""
    found: dict[tuple[str, str], str] = {}
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.concrete_fields:
            related = field.remote_field and field.related_model
            target = related._meta.db_table if related else model._meta.db_table
            if related or field.primary_key:
                found[model._meta.db_table, str(field.column)] = target
    return found


@cache
def tables() -> set[str]:
    return {table for table, _column in named_tables()}


def cut(text: str) -> str:
    """Return the text, or its beginning, length and SHA-256 if it is long."""
    text = storable(text)
    if len(text) <= LONGEST_VALUE:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[:SHOWN_OF_LONG]}… ({len(text)} characters, SHA-256 {digest}…)"
