"""Says what becomes of each offset of a delivery in a group ordered by key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from streams.consume.outcome.failure import Judged
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.log.held_keys import GroupPartition, KeyedRow, wait
from streams.log.keys import keys_of
from streams.models import Again, Cursor, Delivery, Kind, Message, RetryMessage
from streams.models.retry import CHUNK
from streams.rules.key import key_hash


@dataclass(frozen=True)
class Parking:
    """What is written of a delivery's offsets below its new progress, in the order of offsets.

    ``judged`` are the failures that count: the failure of a message whose key another one of the
    same call holds is none, and neither is its success.
    """

    stop: int
    judged: Sequence[Judged] = ()
    blocking: Again | None = None  # the cursor returns to it
    waiting: Sequence[KeyedRow] = ()  # failed or parked messages with a key
    keyless: Sequence[Again] = ()  # failed messages without one: they wait for no other
    parked: dict[int, list[int]] = field(default_factory=dict)  # offsets by the hash of the key

    @property
    def parks(self) -> frozenset[int]:
        return frozenset(at for offsets in self.parked.values() for at in offsets)

    @property
    def is_empty(self) -> bool:
        return not (self.judged or self.waiting or self.keyless)

    def write(self, delivery: Delivery, cursor: Cursor | None) -> None:
        """Write the rows, and move the ``cursor`` on, or back to what blocks it, if the delivery
        has ended.

        A key that is held by a dead message without a letter, since it was purged meanwhile, is let
        go by the next sweep.

        The caller has locked the cursor and moved the progress.
        """
        place = GroupPartition(delivery.group_id, delivery.partition_id)
        if self.waiting:
            wait(place, self.waiting, delivery.using, replays=delivery.kind == Kind.REPLAY)
        RetryMessage.objects.using(delivery.using).schedule(*place, self.keyless)
        if cursor is None:
            return
        if again := self.blocking:
            cursor.return_to(again.offset, again.attempt, again.delay, error=again.error)
        else:
            cursor.return_to(self.stop)


def wait_in_order(
    place: GroupPartition, retries: Iterable[Again], dead: Collection[int], using: str
) -> None:
    """Write retries of a group by key whose keys are not known yet, each behind its key.

    The letters of the offsets ``dead`` hold their keys. The caller has locked the cursors of the
    place.
    """
    again = {at: Again(at, 1) for at in dead} | {row.offset: row for row in retries}
    offsets = sorted(again)
    for start in range(0, len(offsets), CHUNK):
        chunk = offsets[start : start + CHUNK]
        log = Message.objects.using(using).filter(partition=place.partition, offset__in=chunk)
        keys: dict[int, str] = dict(log.exclude(key=None).values_list("offset", "key"))  # type: ignore[arg-type]
        in_order = sorted(keys.items())
        rows = [KeyedRow(again[at], key, key_hash(key), at in dead) for at, key in in_order]
        wait(place, rows, using)
        keyless = [again[at] for at in chunk if at not in keys and at not in dead]
        RetryMessage.objects.using(using).schedule(*place, keyless)


def parking(
    delivery: Delivery,
    stop: int,
    judged: Sequence[Judged],
    parks: Collection[int],
    *,
    blocks: bool,
    passed: Collection[int] = (),
) -> Parking:
    """Say what becomes of the offsets from the progress of the delivery to ``stop`` - 1.

    ``parks`` were not handed over. Those ``passed`` are done, whatever their keys wait for. The
    last one of ``judged``, if it ``blocks``, is not written here: the cursor returns to it.
    """
    if not judged and not parks:
        return Parking(stop)
    by_offset = {one.failure.offset: one for one in judged}
    first = min((*by_offset, *parks))
    place = delivery.partition_id, first, stop, delivery.using
    keys = keys_of(*place)
    if len(keys) < stop - first:  # the read may have gone to a replica that is behind
        keys = retrying(_on_primary, delivery.using, *place)
    kept: list[Judged] = []
    waiting: list[KeyedRow] = []
    keyless: list[Again] = []
    parked: dict[int, list[int]] = {}
    held: set[int] = set()
    blocking: Again | None = None
    for offset in sorted(set(range(first, stop)).difference(passed)):
        one, key = by_offset.get(offset), keys.get(offset)
        hashed = None if key is None else key_hash(key)
        if key is not None and hashed is not None and (offset in parks or hashed in held):
            waiting.append(KeyedRow(Again(offset, delivery.attempt), key, hashed))
            parked.setdefault(hashed, []).append(offset)
            held.add(hashed)
            continue
        if one is None:
            if offset in parks:  # gone from the log meanwhile: its retry says that it is missing
                keyless.append(Again(offset, delivery.attempt))
            continue
        kept.append(one)
        if one.again is None:
            if delivery.group.hold_dead and key is not None and hashed is not None:
                waiting.append(KeyedRow(Again(offset, delivery.attempt), key, hashed, dead=True))
                held.add(hashed)
            continue
        if blocks and offset == stop - 1:
            blocking = one.again
        elif key is None or hashed is None:
            keyless.append(one.again)
        else:
            waiting.append(KeyedRow(one.again, key, hashed))
            held.add(hashed)
    return Parking(stop, kept, blocking, waiting, keyless, parked)


def _on_primary(partition_id: int, start: int, end: int, using: str) -> dict[int, str | None]:
    with own_transaction(using):
        return keys_of(partition_id, start, end, using)
