"""Describes a stream of Spark: what it has not read, and how near a purge is to that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class ReaderShown(Noun):
    """A stream in one of its topics; ``retention_used`` is 1 where a purge may pass it."""

    reader: int = column("reader.pk")
    database: str = column("reader._state.db")
    name: str = column("reader.name")
    checkpoint: str = column("reader.checkpoint")
    topic: str = column("reader.topic.name")
    state: str = column(lambda one: one.state.value)
    behind: int
    lost: int
    age_seconds: timedelta | None = column("age")
    per_second: float | None = column("rate")
    retention_used: float | None = column("used")
    protect: bool = column("reader.protect")
    protects: bool
    first_seen_at: datetime = column("reader.first_seen_at")
    seen_at: datetime = column("reader.seen_at")
