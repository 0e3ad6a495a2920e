"""Says how long committed messages have waited for an offset."""

from __future__ import annotations

from datetime import timedelta

from django.db import connections

from streams.database.clock import database_now, instant
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import LIST, fetch
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
    since = {pk: instant(at) for pk, at in fetch(using, sql.late(vendor, due))}
    for start in range(0, len(due), LIST):
        for pk, at in fetch(using, sql.first_immediate(vendor, due[start : start + LIST])):
            since[pk] = min(instant(at), since.get(pk, instant(at)))
    now = database_now(using)
    return {names[pk]: now - at for pk, at in since.items()}
