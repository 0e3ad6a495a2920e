"""Takes the slots in which messages of a group with a rate for each key begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db import connections

from streams.api import ReceivedMessage
from streams.consume.outcome.failure import KeyHeldBack
from streams.consume.rate import MICROSECONDS, Rate
from streams.consume.registry import RateKey
from streams.database.retrying import retrying
from streams.database.sql import rate_keys as sql
from streams.database.sql.dialect import execute, fetch
from streams.database.transactions import own_transaction
from streams.deliver.starts import AHEAD_SECONDS, SLICE_SECONDS
from streams.models import Delivery, Kind
from streams.rules.key import key_hash

AHEAD = int(AHEAD_SECONDS * MICROSECONDS)


class KeySlots(NamedTuple):
    """How many slots of a key were taken, and when messages begin, by the monotonic clock.

    The taken ones have all come at ``earliest``, and the first one lasts until ``latest``. The
    first message that got none may come again at ``again``, and each other an interval later.
    """

    number: int
    earliest: float
    latest: float
    again: float


class KeyStarts:
    """The starts of the calls for one delivery in a group with a rate for each key.

    A retry waits for a slot that is near; what is new waits for none, since others come after it.
    """

    def __init__(self, delivery: Delivery, key: RateKey, rate: Rate) -> None:
        self._using = delivery.using
        self._group = delivery.group_id
        self._key = key
        self._rate = rate
        self._retry = delivery.kind == Kind.RETRY
        self._earliest = self._latest = 0.0  # of the next call

    def calls(
        self, calls: Iterator[list[ReceivedMessage]], early: dict[int, Exception]
    ) -> Iterator[list[ReceivedMessage]]:
        """Yield the messages of each call that may begin; note why others may not, by offset."""
        for messages in calls:
            if now := self._chosen(messages, early):
                yield now

    def wait(self, stopped: Callable[[], bool]) -> bool:
        """Wait until the next call may begin; return False if it is ``stopped``."""
        while (left := self._earliest - time.monotonic()) > 0:
            if stopped():
                return False
            time.sleep(min(left, SLICE_SECONDS))
        return True

    @property
    def serve(self) -> bool:
        """Tell whether the next call may still begin in its slots."""
        return time.monotonic() <= self._latest

    def _chosen(
        self, messages: Sequence[ReceivedMessage], early: dict[int, Exception]
    ) -> list[ReceivedMessage]:
        of_key: dict[int, list[ReceivedMessage]] = {}
        for message in messages:
            try:
                of_key.setdefault(key_hash(self._key_of(message)), []).append(message)
            except Exception as error:  # noqa: BLE001 - whatever the function of a project raises
                early[message.offset] = error
        if not of_key:
            return []
        wanted = {key: len(of_key[key]) for key in sorted(of_key)}
        taken = retrying(self._take, self._using, wanted)
        interval = self._rate.interval / MICROSECONDS
        for key, slots in taken.items():
            for place, message in enumerate(of_key[key][slots.number :]):
                early[message.offset] = KeyHeldBack(slots.again + place * interval)
        used = [slots for slots in taken.values() if slots.number]
        self._earliest = max((slots.earliest for slots in used), default=0.0)
        self._latest = min((slots.latest for slots in used), default=0.0)
        return [message for message in messages if message.offset not in early]

    def _key_of(self, message: ReceivedMessage) -> str:
        if isinstance(self._key, str):
            return message.headers.get(self._key, "")
        key = self._key(message)
        if not isinstance(key, str):
            raise TypeError(f"rate_key must return a text, not {key!r:.200}")
        return key

    def _take(self, wanted: Mapping[int, int]) -> dict[int, KeySlots]:
        """Take slots for so many messages of each key, and places in its queue for the others."""
        vendor = connections[self._using].vendor
        place = [self._group, *wanted]
        while True:
            with own_transaction(self._using):
                before = time.monotonic()
                rows = fetch(self._using, sql.lock_buckets(vendor, len(wanted)), place)
                after = time.monotonic()
                if len(rows) == len(wanted):
                    return {
                        key: self._of(key, wanted[key], before, after, *row) for key, *row in rows
                    }
            missing = [key for key in wanted if key not in {row[0] for row in rows}]
            values = [value for key in missing for value in (self._group, key)]
            with own_transaction(self._using):
                execute(self._using, sql.add_buckets(vendor, len(missing)), values)

    def _of(
        self, key: int, wanted: int, before: float, after: float, now: int, slot: int, queued: int
    ) -> KeySlots:
        """Take slots of one key, whose bucket is locked; ``now`` is between the two readings."""
        rate = self._rate
        ahead = AHEAD if self._retry else 0
        # No take leaves it further away, unless the clock was set back or the rate was lower.
        slot = min(slot, now + AHEAD + rate.interval)
        first = max(slot, now - rate.depth)
        free = (now + ahead - first) // rate.interval + 1
        if queued > now and not self._retry:
            free = 0  # those that wait come before it
        number = max(0, min(wanted, free))
        end = first + number * rate.interval
        again = max(queued, end, now)
        if wanted > number:
            queued = again + (wanted - number) * rate.interval
        execute(self._using, sql.WRITE_BUCKET, [end, queued, self._group, key])
        return KeySlots(
            number,
            after + (end - rate.interval - now) / MICROSECONDS,
            before + (first - now + rate.late) / MICROSECONDS,
            after + (again - now) / MICROSECONDS,
        )
