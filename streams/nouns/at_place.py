"""Describes what happens to messages of a place in the log, for a group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Prefetch, prefetch_related_objects

from streams.log.places import LogPlace
from streams.models import ConsumerGroup, Partition
from streams.nouns.noun import Noun, column

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class AtPlace(Noun):
    """A row of a group and a partition, either of which may have been deleted since."""

    database: str = column("_state.db")
    topic: str | None = column("group.topic.name")
    group: str | None = column("group.name")
    partition: int | None = column("partition.number")
    place: str = column(lambda row: str(LogPlace.of(row)))


def with_names(rows: Iterable[Row], using: str) -> list[Row]:
    """Return the rows with their groups and partitions, which two statements find."""
    found: list[Any] = list(rows)
    names: tuple[Any, ...] = (
        Prefetch("group", ConsumerGroup.objects.using(using).select_related("topic")),
        Prefetch("partition", Partition.objects.using(using).select_related("topic")),
    )
    prefetch_related_objects(found, *names)
    return found
