"""Reads which keys are held: the message that holds each, since when, and how many wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from streams.log.counting import count_each
from streams.models import HeldKey, RetryMessage, UtcNow

# A count of what waits for a key ends here.
COUNTED = 10_001
CHUNK = 200  # keys in one statement


@dataclass(frozen=True)
class KeyHolder:
    """A held key, and the message that holds it; a key without one is let go by the next sweep."""

    held: HeldKey
    head: RetryMessage | None
    behind: int  # messages that wait for it; COUNTED says that many or more
    as_of: datetime

    @property
    def place(self) -> str:
        return f"{self.held.partition}@{self.held.head_offset}"

    @property
    def age(self) -> timedelta:
        age: timedelta = self.as_of - self.held.held_at
        return age

    @property
    def is_running(self) -> bool:
        return self.head is not None and self.head.delivery_id is not None

    @property
    def state(self) -> str:
        if self.held.dead:
            return "dead"
        return "running" if self.is_running else "waiting"

    @property
    def attempt(self) -> int | None:
        """Return the attempt that runs, or comes next."""
        return self.head.attempt if self.head else None

    @property
    def due_at(self) -> datetime | None:
        """Return when the next attempt may begin; None while one runs."""
        return None if self.head is None or self.is_running else self.head.due_at

    @property
    def error(self) -> str:
        """Return the error of the last attempt that failed."""
        return self.head.last_error if self.head else ""


def key_holders(keys: Sequence[HeldKey], using: str) -> list[KeyHolder]:
    """Return who holds these keys, in their order, by two statements for hundreds of them."""
    found: list[KeyHolder] = []
    for start in range(0, len(keys), CHUNK):
        found += _of_chunk(keys[start : start + CHUNK], using)
    return found


def _of_chunk(keys: Sequence[HeldKey], using: str) -> list[KeyHolder]:
    rows = RetryMessage.objects.using(using)
    # The message of each, by its place; and all with its hash, by the index of hashes.
    heads = Q()
    behind: dict[int, Any] = {}
    for key in keys:
        place = {"group": key.group_id, "partition": key.partition_id}
        heads |= Q(**place, offset=key.head_offset)
        behind[key.pk] = rows.filter(**place, key_hash=key.key_hash, offset__gt=key.head_offset)
    now = UtcNow()
    there: Mapping[tuple[int, int, int], Any] = {
        (row.group_id, row.partition_id, row.offset): row
        for row in rows.filter(heads).annotate(now=now)
    }
    counts = count_each(behind, COUNTED, using)
    return [
        KeyHolder(key, head, counts.get(key.pk, 0), head.now if head else key.held_at)
        for key in keys
        for head in [there.get((key.group_id, key.partition_id, key.head_offset))]
    ]
