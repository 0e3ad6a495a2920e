"""Reads what blocks the partitions of ordered groups: messages that have failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q

from streams.consume.limits import known_max_retries
from streams.log.held_keys import TOO_MANY
from streams.log.lag import CHUNK
from streams.models import ConsumerGroup, Cursor, Message, UtcNow

# In partitions of a group: those that have been blocked the longest.
SHOWN = 50


@dataclass(frozen=True)
class Blocked:
    """A message that blocks its partition of an ordered group. What is unknown is None."""

    topic: str
    group: str
    partition: int
    offset: int
    message: int | None  # its id; None: it is gone from the log
    error: str | None  # of the last attempt that failed
    attempt: int  # the one that runs, or comes next
    attempts: int | None  # the most that it gets
    since: datetime | None  # its first failure
    due_at: datetime | None  # when the next attempt may begin; None: at once
    is_running: bool
    behind: int  # messages that wait for it
    as_of: datetime

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"

    @property
    def state(self) -> str:
        """Return ``running`` while a consumer handles it again, else ``blocks``."""
        return "running" if self.is_running else "blocks"

    @property
    def waits_for_room(self) -> bool:
        """Tell whether it was not tried, since no more messages of its group may be parked."""
        return self.error == TOO_MANY

    @property
    def age(self) -> timedelta | None:
        return None if self.since is None else self.as_of - self.since

    @property
    def due_in(self) -> timedelta | None:
        """Return the time until the next attempt; None if one is running or may begin."""
        waits = not self.is_running and self.due_at is not None and self.due_at > self.as_of
        return self.due_at - self.as_of if waits and self.due_at else None


@dataclass(frozen=True)
class Blockade:
    """What blocks a group: the partitions that have been blocked the longest, and how many are."""

    partitions: int
    worst: Sequence[Blocked]

    @property
    def unshown(self) -> int:
        """Return how many partitions are blocked beside the ``worst``."""
        return self.partitions - len(self.worst)

    def without_errors(self) -> Blockade:
        """Return the same for those who may not view messages, and so not their errors."""
        return replace(self, worst=[replace(one, error=None) for one in self.worst])


def blockades(
    groups: Iterable[ConsumerGroup],
    using: str,
    *,
    partition: int | None = None,
    most: int = SHOWN,
) -> Mapping[int, Blockade]:
    """Return what blocks those of ``groups`` that are blocked, by their ids.

    At most ``most`` partitions of each group are described; or only the one of this number.
    """
    ordered = {group.pk: group for group in groups if group.ordered}
    rows = Cursor.objects.using(using).blocked().filter(group__in=ordered)
    if partition is not None:
        rows = rows.filter(partition__number=partition)
    found: dict[int, list[int]] = {}
    for group, cursor in rows.order_by(F("blocked_at").asc(nulls_last=True), "pk").values_list(
        "group", "pk"
    ):
        found.setdefault(group, []).append(cursor)
    chosen = [pk for of_group in found.values() for pk in of_group[:most]]
    # They may have gone on since they were chosen.
    rows = Cursor.objects.using(using).blocked().annotate(now=UtcNow()).select_related("partition")
    described: dict[int, list[Blocked]] = {pk: [] for pk in found}
    for start in range(0, len(chosen), CHUNK):
        chunk = chosen[start : start + CHUNK]
        by_pk = rows.in_bulk(chunk)
        cursors = [by_pk[pk] for pk in chunk if pk in by_pk]
        messages = _messages(cursors, using)
        for one in cursors:
            message = messages.get((one.partition_id, one.next_message))
            described[one.group_id].append(describe(one, ordered[one.group_id], message))
    return {pk: Blockade(len(of_group), described[pk]) for pk, of_group in found.items()}


def _messages(cursors: Sequence[Cursor], using: str) -> dict[tuple[Any, Any], int]:
    """Return the ids of the messages that block at most CHUNK cursors, by place."""
    if not cursors:
        return {}
    places = Q()
    for one in cursors:
        places |= Q(partition=one.partition_id, offset=one.next_message)
    log = Message.objects.using(using).filter(places)
    rows = log.values_list("partition", "offset", "pk")
    return {(partition, offset): pk for partition, offset, pk in rows}


def describe(cursor: Any, group: ConsumerGroup, message: int | None) -> Blocked:
    """Describe the message that blocks ``cursor``, which has the time of its reading as ``now``."""
    retries = known_max_retries(group, cursor._state.db)
    return Blocked(
        topic=group.topic.name,
        group=group.name,
        partition=cursor.partition.number,
        offset=cursor.next_message,
        message=message,
        error=cursor.last_error or None,
        attempt=cursor.attempt,
        attempts=None if retries is None else retries + 1,
        since=cursor.blocked_at,
        due_at=cursor.blocked_until,
        is_running=cursor.open_delivery is not None,
        behind=max(0, cursor.partition.next_offset - cursor.next_message - 1),
        as_of=cursor.now,
    )
