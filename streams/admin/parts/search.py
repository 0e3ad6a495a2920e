"""Parses what a user searches: an id, a place in the log, or a text such as a key."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db.models import Q

from streams.conf import MAX_BATCH, database
from streams.errors import InvalidPlace
from streams.log.places import LogPlace
from streams.models import ConsumerGroup, Partition

ID = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Place:
    """Offsets of a partition that exists."""

    partition: Partition
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Parse a place; return None if it is not one, or its log does not exist."""
        try:
            named = LogPlace.parse(text)
        except InvalidPlace:
            return None
        partition = named.partition(database())
        return None if partition is None else cls(partition, named.first, named.last)

    @property
    def messages(self) -> Q:
        """Return the condition for rows with one offset. Indexes: (partition, offset)."""
        return Q(partition=self.partition.pk, offset__gte=self.first, offset__lte=self.last)

    @property
    def of_groups(self) -> Q:
        """Return the same condition for tables whose indexes begin with the group."""
        return self.messages & Q(group__in=self._groups())

    @property
    def deliveries(self) -> Q:
        """Return the condition for deliveries; each covers at most MAX_BATCH offsets."""
        return Q(
            group__in=self._groups(),
            partition=self.partition.pk,
            first_offset__gt=self.first - MAX_BATCH,
            first_offset__lte=self.last,
            last_offset__gte=self.first,
        )

    def _groups(self) -> list[int]:
        groups = ConsumerGroup.objects.using(database()).filter(topic=self.partition.topic_id)
        return list(groups.values_list("pk", flat=True))


@dataclass(frozen=True)
class Search:
    """One search term, and what it may be."""

    text: str
    pk: int | None
    place: Place | None

    @classmethod
    def parse(cls, term: str) -> Search:
        text = term.strip()
        pk = int(text) if ID.fullmatch(text) else None
        return cls(text, pk, None if pk else Place.parse(text))

    @property
    def is_text(self) -> bool:
        """Tell whether no index serves this search."""
        return bool(self.text) and self.place is None

    @property
    def id_match(self) -> Q | None:
        return None if self.pk is None else Q(pk=self.pk)

    def matches(self, text: Q, place: Q | None = None) -> Q:
        """Return the condition of the search: the place, or else this id or ``text``."""
        if self.place is not None and place is not None:
            return place
        return text | self.id_match if self.id_match is not None else text
