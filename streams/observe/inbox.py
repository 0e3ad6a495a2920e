"""Says how long committed messages have waited for an offset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections

from streams.database.sql import sequence as sql
from streams.database.sql.dialect import LIST, NOW, fetch
from streams.models import Partition
from streams.models.namespaces import own


def waiting(using: str) -> dict[tuple[str, int], timedelta]:
    """Return the age of the oldest due message without an offset, by (topic, partition number).

    The age counts from the send, or from when a delayed message was due. It reads one or two
    entries of an index for each partition, however many messages wait.
    """
    partitions = Partition.objects.using(using).filter(own("topic__name"))
    names = {
        pk: (topic, n) for pk, topic, n in partitions.values_list("pk", "topic__name", "number")
    }
    if not names:
        return {}
    vendor = connections[using].vendor
    due = [pk for pk, _at in fetch(using, sql.partitions_with_inbox(vendor, names))]
    if not due:
        return {}
    since = {pk: _utc(at) for pk, at in fetch(using, sql.late(vendor, due))}
    for start in range(0, len(due), LIST):
        for pk, at in fetch(using, sql.first_immediate(vendor, due[start : start + LIST])):
            since[pk] = min(_utc(at), since.get(pk, _utc(at)))
    now = _utc(fetch(using, f"SELECT {NOW[vendor]}")[0][0])
    return {names[pk]: now - at for pk, at in since.items()}


def _utc(value: Any) -> datetime:
    """Return an instant as the driver gives it: SQLite's is a text."""
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    found: datetime = at.replace(tzinfo=UTC)
    return found
