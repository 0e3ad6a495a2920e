"""Says how long committed messages have waited for an offset."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import connections

from streams.database.clock import database_now, instant
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import LIST, fetch
from streams.models import IMMEDIATE, Partition
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
    since = due_since(names, using)
    if not since:
        return {}
    now = database_now(using)
    return {names[pk]: now - at for pk, at in since.items()}


def due_since(partitions: Iterable[int], using: str) -> dict[int, datetime]:
    """Return since when the oldest due message of each of these partitions has had no offset.

    One statement, and one more for each LIST partitions in which messages wait that were sent at
    once. A partition in which nothing is due is left out.
    """
    ids = list(partitions)
    if not ids:
        return {}
    vendor = connections[using].vendor
    since: dict[int, datetime] = {}
    at_once: list[int] = []
    for pk, due_at in fetch(using, sql.due_heads(vendor, ids)):
        if instant(due_at) == IMMEDIATE:
            at_once.append(pk)
        else:
            since[pk] = instant(due_at)
    for start in range(0, len(at_once), LIST):
        for pk, sent in fetch(using, sql.first_immediate(vendor, at_once[start : start + LIST])):
            since[pk] = min(instant(sent), since.get(pk, instant(sent)))
    return since


def due_counts(partitions: Iterable[int], at_most: int, using: str) -> dict[int, int]:
    """Return how many messages are due in each of these partitions.

    Together at most ``at_most`` of each LIST partitions are counted, in one statement.
    """
    ids = list(partitions)
    if not ids:
        return {}
    statements = sql.due_counts(connections[using].vendor, ids, at_most)
    return {pk: int(count) for statement in statements for pk, count in fetch(using, statement)}
