"""Settles the messages of a delivery in any order, and splits it where their outcomes differ.

A client that handles many messages at once ends them as they come. Which of a claim are settled is
a bitmap beside its progress, written only by whoever wrote the bits before: many deliveries in one
statement. Whatever else is to become of such a delivery, it is split before: what is settled has a
row that has ended, and each stretch of the rest is a delivery like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

from django.db import connections

from streams.database.retrying import retrying
from streams.database.sql import settle as sql
from streams.database.sql.dialect import execute, later
from streams.database.transactions import own_transaction
from streams.errors import LeaseLost
from streams.models import Cursor, Delivery, State
from streams.models.delivery import DeliveryQuerySet
from streams.models.fields import UtcNow
from streams.telemetry import SETTLE, observed

# What a part has of the delivery that was split.
COPIED = (
    *("group_id", "partition_id", "kind", "attempt", "client_id", "thread", "token"),
    *("state", "claimed_at", "started_at", "deadline"),
)


@dataclass(frozen=True)
class Ends:
    """What is settled of a delivery by now, as bits; ``running``: since it was handed over."""

    delivery: Delivery
    settled: int
    running: timedelta = timedelta(0)

    @property
    def progress(self) -> int:
        first = self.delivery.first_offset
        return max(self.delivery.progress, first + _low_ones(self.settled))

    @property
    def whole(self) -> bool:
        return self.progress > self.delivery.last_offset


def bits(offsets: Collection[int], first: int) -> int:
    """Return the bits of ``offsets`` of a delivery that begins at ``first``."""
    return sum(1 << (offset - first) for offset in offsets)


def offsets_of(marks: int, first: int) -> set[int]:
    """Return the offsets whose bits ``marks`` has, of a delivery that begins at ``first``."""
    return {first + at for at in range(marks.bit_length()) if marks >> at & 1}


@observed(SETTLE)
def settle_any_order(ends: Sequence[Ends], using: str) -> list[Delivery]:
    """Record what is settled of these deliveries, in one statement; return those that are lost.

    None of them is a retry, whose row would have to go, and none of an ordered group ends by it:
    its cursor would have to move. A delivery is not lost if an earlier try or an earlier call has
    written it, and its reply was lost.
    """
    if not ends:
        return []

    def write() -> list[Delivery]:
        while execute(using, *_update(ends, connections[using].vendor)) < len(ends):
            rows = Delivery.objects.using(using).filter(pk__in=[one.delivery.pk for one in ends])
            there = {pk: rest for pk, *rest in rows.values_list("pk", "token", "settled")}
            if not _take_over_written(ends, there):
                return [
                    one.delivery
                    for one in ends
                    if there.get(one.delivery.pk) != [one.delivery.token, one.settled]
                ]
        return []

    lost = retrying(write, using)
    gone = {delivery.pk for delivery in lost}
    for one in ends:
        if one.delivery.pk not in gone:
            one.delivery.settled, one.delivery.progress = one.settled, one.progress
    return lost


def _take_over_written(ends: Sequence[Ends], there: Mapping[int, list[Any]]) -> bool:
    """Take over the bits that earlier calls have written without a reply; False if there are none.

    ``there``: the token and the bits of each row. A row with other bits than ours has another
    holder.
    """
    found = False
    for one in ends:
        token, settled = there.get(one.delivery.pk, ("", None))
        written, known = settled or 0, one.delivery.settled or 0
        ours = token == one.delivery.token and not written & ~one.settled
        if ours and written not in (known, one.settled):
            one.delivery.settled, found = written, True
    return found


def _update(ends: Sequence[Ends], vendor: str) -> tuple[str, list[Any]]:
    ended = [one for one in ends if one.whole]
    ids = [one.delivery.pk for one in ends]
    statement = sql.settle_any_order(vendor, ids, [one.delivery.pk for one in ended])
    parameters: list[Any] = [one.settled for one in ends]
    parameters += [one.progress for one in ends]
    parameters += [later(vendor, -one.running) for one in ended]
    for one in ends:
        row = one.delivery
        parameters += [row.token, row.last_offset, row.settled or 0]
    return statement, parameters


def split(
    delivery: Delivery,
    apart: Collection[int] = (),
    among: DeliveryQuerySet | None = None,
    *,
    tried: bool = False,
) -> list[Delivery]:
    """Give each part of the delivery a row of its own; return those that are open.

    A part is a stretch of settled offsets, which has ended, one of the offsets ``apart``, or a
    stretch of the others. The holder stays the same. ``among``: the row must be one of these, by
    default one that is held by the token. ``tried``: an earlier call with the same ``apart`` may
    have split it already, but its reply was lost. Raises LeaseLost.
    """
    if not (delivery.settled or apart):
        return [delivery]

    def write() -> list[Delivery]:
        nonlocal tried
        again, tried = tried, True
        with own_transaction(delivery.using):
            # As for every change of a range: see settle._give_back_range.
            place = {"group": delivery.group_id, "partition": delivery.partition_id}
            cursors = Cursor.objects.using(delivery.using).filter(**place)
            list(cursors.order_by("replay").select_for_update().values_list("pk"))
            rows = delivery.held() if among is None else among.filter(pk=delivery.pk)
            rows = rows.filter(last_offset=delivery.last_offset, settled=delivery.settled)
            row = rows.select_for_update().first()
            if row is not None:
                return _written(row, list(_parts(row, apart)))
            # Parts of an earlier split have the same token, and other offsets.
            same = (
                Delivery.objects.using(delivery.using)
                .open()
                .filter(
                    **place,
                    token=delivery.token,
                    first_offset__gte=delivery.first_offset,
                    last_offset__lte=delivery.last_offset,
                )
            )
            parts = list(same.order_by("first_offset")) if again else []
            if not parts:
                raise LeaseLost
            return parts

    found = retrying(write, delivery.using)
    for part in found:
        part._state.fields_cache.update(delivery._state.fields_cache)
    return found


def _parts(row: Delivery, apart: Collection[int]) -> Iterator[tuple[range, bool]]:
    """Yield the parts of a delivery, and whether each is settled."""

    def kind(offset: int) -> tuple[bool, int]:
        settled = row.is_settled(offset)
        return settled, offset if offset in apart and not settled else -1

    for (settled, _apart), some in groupby(row.offsets, kind):
        offsets = list(some)
        yield range(offsets[0], offsets[-1] + 1), settled


def _written(row: Delivery, parts: list[tuple[range, bool]]) -> list[Delivery]:
    found = []
    for part, settled in parts:
        values: dict[str, Any] = {
            "first_offset": part.start,
            "last_offset": part.stop - 1,
            "progress": part.stop if settled else part.start,
            "settled": None,
        }
        if settled:
            values |= {"state": State.DONE, "finished_at": UtcNow()}
        if part.start == row.first_offset:
            Delivery.objects.using(row.using).filter(pk=row.pk).update(**values)
            pk = row.pk
        else:
            new = {name: getattr(row, name) for name in COPIED} | values
            pk = Delivery.objects.using(row.using).create(**new).pk
        if not settled:
            found.append(Delivery.objects.using(row.using).get(pk=pk))
    return found


def _low_ones(value: int) -> int:
    """Return how many of the lowest bits are set, without a gap."""
    return (~value & (value + 1)).bit_length() - 1
