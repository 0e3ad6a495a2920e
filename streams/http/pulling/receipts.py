"""Defines the receipt of a delivery, which proves that its holder may settle it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import connections

from streams.conf import settings
from streams.database.clock import instant
from streams.database.remembered import Forgettable
from streams.database.retrying import retrying
from streams.database.sql import pull as sql
from streams.database.sql.dialect import fetch
from streams.errors import InvalidValue, LeaseLost
from streams.http.pulling.groups import by_id
from streams.models import Delivery
from streams.sharding import aliases

# A range that was given back has no token: an empty one must never be looked up.
# The alias is absent where it is EMS["DATABASE"].
RECEIPT = re.compile(r"([1-9][0-9]{0,17})\.([0-9a-f]{32})(?:@(.+))?")
# As many deliveries as a process remembers; the oldest are forgotten.
REMEMBERED = 4096


def receipt_of(delivery: Delivery) -> str:
    alias = delivery.using
    place = "" if alias == settings().DATABASE else f"@{alias}"
    return f"{delivery.pk}.{delivery.token}{place}"


@dataclass
class Named:
    """The delivery of a receipt, open or ended, and when it was claimed, on the monotonic clock."""

    delivery: Delivery
    claimed: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> timedelta:
        """How long ago it was claimed."""
        return timedelta(seconds=time.monotonic() - self.claimed)


# By alias and id: deliveries that this process has handed out, as it knows them.
_handed: Forgettable[tuple[str, int], Named] = Forgettable()


def remember(known: Named) -> None:
    """Remember an open delivery: its ack, if it comes to this process, need not read it."""
    while len(_handed) >= REMEMBERED:
        with suppress(StopIteration, RuntimeError):  # others do so at this moment
            _handed.pop(next(iter(_handed)), None)
    _handed[known.delivery.using, known.delivery.pk] = known


def remembered(receipt: str, offset: int) -> Named | None:
    """Return an open delivery of which ``offset`` is the next, as this process knows it, or None.

    It is forgotten, so that one request has it. Others may have changed it since: only a write that
    is guarded by its token and its progress says how it is.
    """
    pk, token, using = _parsed(receipt)
    known = _handed.pop((using, pk), None)
    if known is None or known.delivery.token != token or known.delivery.progress != offset:
        return None
    return known if _with_place(known.delivery) else None


def named(receipt: str) -> Named:
    """Return the delivery of ``receipt``, on the database that it names.

    Raises InvalidValue for what is not a receipt, and LeaseLost if the delivery was taken away.
    """
    pk, token, using = _parsed(receipt)
    statement = sql.OF_RECEIPT[connections[using].vendor]
    rows = retrying(fetch, using, using, statement, [pk, token])
    if not rows:
        raise LeaseLost
    ((*values, claimed_at, now),) = rows
    delivery = Delivery.from_db(using, sql.RECEIPT_COLUMNS, values)
    if not _with_place(delivery):
        raise LeaseLost
    age = instant(now) - instant(claimed_at)
    return Named(delivery, time.monotonic() - age.total_seconds())


def _parsed(receipt: str) -> tuple[int, str, str]:
    """Return id, token and alias of a receipt; raises InvalidValue."""
    match = RECEIPT.fullmatch(receipt)
    using = (match and match[3]) or settings().DATABASE
    if match is None or using not in aliases():
        raise InvalidValue("This is not a receipt: pass what the pull gave.")
    return int(match[1]), match[2], using


def _with_place(delivery: Delivery) -> bool:
    """Give a delivery its group and its partition, as they are now; False if they are gone."""
    place = by_id(delivery.group_id, delivery.partition_id, delivery.using)
    if place is not None:
        delivery.group, delivery.partition = place
    return place is not None
