"""Searches messages by time, tag and key: the newest first, a bounded number of rows at a time.

The time gives a range of offsets, by a binary search. A key is looked up in ems_key for the part of
a log that the index of keys covers (topics with ``index_keys``). What remains is read row by row,
SEARCHED of them at most; ``SearchResult.then`` says where to go on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from streams.database.sql.dialect import LIST
from streams.errors import InvalidTarget, NaiveDatetime
from streams.log.offsets import offset_at
from streams.log.rewinds import left_out, moved
from streams.models import KeyEntry, Message, Partition

# The most messages that one search reads to compare them, in all partitions together.
SEARCHED = 100_000
# The most searches that go on one after the other without being asked to.
STEPS = 50
# The most topics whose index somebody is told to make.
LISTED = 3
# The most messages of the inbox of a partition, and the most entries of the index of keys, that
# one search reads.
INBOX_SEARCHED = 10_000
ENTRIES = 1000

POSITION = re.compile(r"([0-9]{1,18})@([0-9]{1,18})")

# {id of a partition: the offset below which a search goes on}; other partitions are finished. At
# INBOX, which is the id of none, stands how many messages of the inbox were shown.
Position = dict[int, int]
INBOX = 0


@dataclass(frozen=True)
class Criteria:
    """What is searched: sequenced at ``since`` or later, before ``until``; tag; key.

    Raises NaiveDatetime.
    """

    since: datetime | None = None
    until: datetime | None = None
    tag: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        for time in (self.since, self.until):
            if time is not None and time.tzinfo is None:
                raise NaiveDatetime(f"{time} is ambiguous: say the time zone.")

    @property
    def is_timed(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def compares(self) -> bool:
        """Tell whether rows must be read to be compared."""
        return self.tag is not None or self.key is not None

    @property
    def equal(self) -> dict[str, str]:
        values = {"tag": self.tag, "key": self.key}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class SearchResult:
    """The messages, and where to go on; ``then`` is empty if all has been searched.

    ``left`` is how many messages are not searched yet.
    """

    messages: list[Message]
    then: Position = field(default_factory=dict)
    left: int = 0

    @property
    def is_complete(self) -> bool:
        return not self.then


@dataclass(frozen=True)
class _Part:
    """What was found in one log, from the newest on, down to the offset ``reached``."""

    messages: list[Message]
    reached: int
    low: int


def search(
    partitions: Iterable[Partition],
    criteria: Criteria,
    limit: int,
    using: str,
    start: Position | None = None,
) -> SearchResult:
    """Return at most ``limit`` messages without their bodies, the newest in the log first.

    The messages of the inbox come before them, unless the criteria have a time, which they have
    not. ``start`` is ``then`` of the search to go on with.
    """
    every = list(partitions)
    chosen = [one for one in every if start is None or one.pk in start]
    budget = max(ENTRIES, SEARCHED // max(1, len(chosen)))
    inbox: list[Message] = []
    parts: dict[int, _Part] = {}
    passed = (0 if start is None else start.get(INBOX)) if not criteria.is_timed else None
    if passed is not None:
        not_empty = _with_inbox(every, using)
        most = min(passed + limit + 1, INBOX_SEARCHED)  # one more tells whether some are left
        for partition in every:
            if partition.pk in not_empty:
                inbox += _inbox(partition, criteria, most, using)
        # In the order in which each inbox was read. A message that gets its offset before the
        # next page leaves the end of this order, so those of the next page keep their numbers.
        inbox.sort(key=lambda message: (message.due_at, message.pk), reverse=True)
        inbox = inbox[passed:most]
    for partition in chosen:
        end = None if start is None else start[partition.pk]
        parts[partition.pk] = _search_log(partition, criteria, end, budget, limit, using)
    # By time; within a partition in the order of the log.
    in_log = [message for part in parts.values() for message in part.messages]
    in_log.sort(key=lambda m: (m.sequenced_at, m.offset), reverse=True)
    shown = [*inbox, *in_log][:limit]
    known = {partition.pk: partition for partition in every}
    for message in shown:
        message.partition = known[message.partition_id]
    then = _then(parts, {message.pk for message in shown})
    if passed is not None and len(inbox) > limit:
        then[INBOX] = passed + limit
    ends = {partition: then[partition.pk] for partition in chosen if partition.pk in then}
    left = sum(
        end - parts[partition.pk].low - left_out(partition, parts[partition.pk].low, end, using)
        for partition, end in ends.items()
    )
    return SearchResult(shown, then, left)


def not_indexed(partitions: Iterable[Partition]) -> list[str]:
    """Return the topics whose messages a search by key reads one by one: those with most first."""
    counts: Counter[str] = Counter()
    for one in partitions:
        end = one.next_offset if one.keys_from is None else one.keys_from
        counts[one.topic.name] += max(0, end - one.first_offset)
    return [name for name, count in counts.most_common(LISTED) if count]


def _then(parts: dict[int, _Part], shown: set[int]) -> Position:
    then: Position = {}
    for pk, part in parts.items():
        left = [m.offset for m in part.messages if m.pk not in shown and m.offset is not None]
        end = max(left) + 1 if left else part.reached
        if end > part.low:
            then[pk] = end
    return then


def _with_inbox(partitions: Sequence[Partition], using: str) -> set[int]:
    """Return the ids of those whose inbox is not empty: one entry of its index for each."""
    rows = Message.objects.using(using).inbox().order_by().values_list("partition", flat=True)
    ids = [partition.pk for partition in partitions]
    chunks = (ids[at : at + LIST] for at in range(0, len(ids), LIST))
    return {pk for chunk in chunks for pk in rows.filter(partition__in=chunk).distinct()}


def _inbox(partition: Partition, criteria: Criteria, limit: int, using: str) -> list[Message]:
    """Return the newest messages of the inbox, in the order of its index."""
    rows = Message.objects.using(using).filter(partition=partition.pk).inbox()
    rows = rows.defer("body").order_by("-due_at", "-id")
    if not criteria.compares:
        return list(rows[:limit])
    compared = rows.values_list("pk", "tag", "key")[:INBOX_SEARCHED]
    ids = [
        pk
        for pk, tag, key in compared
        if criteria.tag in (None, tag) and criteria.key in (None, key)
    ]
    found = Message.objects.using(using).defer("body").in_bulk(ids[:limit])
    return [found[pk] for pk in ids[:limit] if pk in found]


def _search_log(
    partition: Partition,
    criteria: Criteria,
    end: int | None,
    budget: int,
    limit: int,
    using: str,
) -> _Part:
    low, high = partition.first_offset, partition.next_offset
    if criteria.since is not None:
        low = offset_at(partition, criteria.since)
    if criteria.until is not None:
        high = offset_at(partition, criteria.until)
    high = high if end is None else min(end, high)
    found: list[Message] = []
    covered = partition.keys_from
    if criteria.key is not None and covered is not None and covered < high:
        found, high = _indexed(partition, criteria, max(low, covered), high, limit, using)
        if high > max(low, covered):
            return _Part(found, high, low)
    rest, high = _read(partition, criteria, low, high, budget, limit - len(found), using)
    return _Part([*found, *rest], high, low)


def _indexed(
    partition: Partition, criteria: Criteria, low: int, high: int, limit: int, using: str
) -> tuple[list[Message], int]:
    """Look the key up between two offsets; return what was found, and down to which offset."""
    entries = KeyEntry.objects.using(using).filter(
        partition=partition.pk, key=criteria.key, offset__gte=low, offset__lt=high
    )
    most = ENTRIES if criteria.tag is not None else limit
    offsets = list(entries.order_by("-offset").values_list("offset", flat=True)[:most])
    rows = Message.objects.using(using).filter(partition=partition.pk, offset__in=offsets)
    found = list(rows.filter(**criteria.equal).defer("body").order_by("-offset")[:limit])
    if len(found) == limit:
        return found, found[-1].offset or low
    return found, offsets[-1] if len(offsets) == most else low


def _read(
    partition: Partition,
    criteria: Criteria,
    low: int,
    high: int,
    budget: int,
    limit: int,
    using: str,
) -> tuple[list[Message], int]:
    """Read the log backwards between two offsets; index: ems_msg_log."""
    if limit <= 0 or low >= high:
        return [], max(low, high) if limit <= 0 else low
    if criteria.compares:
        low = max(low, moved(partition, high, -budget, using))
    rows = Message.objects.using(using).filter(
        partition=partition.pk, offset__gte=low, offset__lt=high, **criteria.equal
    )
    found = list(rows.defer("body").order_by("-offset")[:limit])
    return found, (found[-1].offset or low) if len(found) == limit else low


def position_text(then: Position) -> str:
    """Return a position as a text: ``3@1200,4@800`` (ids of partitions, and offsets)."""
    return ",".join(f"{partition}@{offset}" for partition, offset in sorted(then.items()))


def parse_position(text: str) -> Position:
    """Parse what ``position_text`` returns; raises InvalidTarget."""
    matches = [POSITION.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        raise InvalidTarget(f"{text!r} is not where a search has stopped.")
    return {int(match[1]): int(match[2]) for match in matches if match}
