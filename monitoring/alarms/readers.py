"""Measures streams of Spark: how near retention is to what they have not read."""

from __future__ import annotations

from monitoring.alarms.measured import Subject, Value, Values
from streams.retain.readers import readers


def retention_used(using: str) -> Values:
    """Return the share of its retention that the oldest unread message of each stream has used.

    It is 1 at least where messages were purged unread. Without a limit there is no value.
    """
    return {
        Subject(one.reader.topic.name, name=str(one.reader)): Value(one.used, str(one))
        for one in readers(using)
        if one.used is not None
    }
