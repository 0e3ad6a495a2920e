"""Describes a topic: what may be done with it, how much it holds, and its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db.models import Count, F, QuerySet, Sum

from streams.models import Topic
from streams.nouns.noun import Noun, column

AccessName = Literal["read-write", "write-only", "read-only", "denied"]


@dataclass(frozen=True, kw_only=True)
class TopicInList(Noun):
    """A topic in a list: ``sequenced`` messages got an offset so far, ``kept`` are left of them."""

    topic: str = column("name")
    database: str = column("_state.db")
    access: AccessName
    partitions: int = column("partitions_in_all")
    sequenced: int = column(lambda row: row.sequenced or 0)
    kept: int = column(lambda row: row.kept or 0)
    retention_seconds: int | None
    created_at: datetime


def with_counts(rows: QuerySet[Topic]) -> QuerySet[Any]:
    """Return the topics with what a list says of their partitions."""
    return rows.annotate(
        partitions_in_all=Count("partitions"),
        sequenced=Sum("partitions__next_offset"),
        kept=Sum(F("partitions__next_offset") - F("partitions__first_offset")),
    )


@dataclass(frozen=True, kw_only=True)
class TopicListed(TopicInList):
    """A topic with what takes longer to find out."""

    inbox: int
    retention: str


@dataclass(frozen=True, kw_only=True)
class TopicRate(TopicInList):
    """A topic with what comes in: messages a second now, and in the last hour.

    What nobody has sampled is null.
    """

    groups: int
    published_per_second: float | None
    published_last_hour: int | None


@dataclass(frozen=True, kw_only=True)
class PartitionState(Noun):
    """A partition: it has the offsets ``first`` … ``next`` - 1.

    ``inbox`` counts the messages that are due and have no offset; 10,000 means at least so many.
    """

    partition: int = column("number")
    first: int = column("first_offset")
    next: int = column("next_offset")
    sequenced_at: datetime | None = column("last_sequenced_at")
    inbox: int
    inbox_since: datetime | None


@dataclass(frozen=True, kw_only=True)
class TopicState(Noun):
    topic: str = column("name")
    database: str = column("_state.db")
    access: AccessName
    retention_seconds: int | None
    retention_count: int | None
    retention_consumed: bool
    archive: bool
    index_keys: bool
    created_at: datetime
    partitions: list[PartitionState]
    groups: list[str]
