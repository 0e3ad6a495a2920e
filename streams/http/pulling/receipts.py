"""Defines the receipt of a delivery, which proves that its holder may settle it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections

from streams.conf import settings
from streams.database.clock import instant
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


def receipt_of(delivery: Delivery) -> str:
    alias = delivery.using
    place = "" if alias == settings().DATABASE else f"@{alias}"
    return f"{delivery.pk}.{delivery.token}{place}"


@dataclass(frozen=True)
class Named:
    """The delivery of a receipt, open or ended, and how long ago it was claimed."""

    delivery: Delivery
    age: timedelta


def named(receipt: str) -> Named:
    """Return the delivery of ``receipt``, on the database that it names.

    Raises InvalidValue for what is not a receipt, and LeaseLost if the delivery was taken away.
    """
    match = RECEIPT.fullmatch(receipt)
    using = (match and match[3]) or settings().DATABASE
    if match is None or using not in aliases():
        raise InvalidValue("This is not a receipt: pass what the pull gave.")
    statement = sql.OF_RECEIPT[connections[using].vendor]
    rows = retrying(fetch, using, using, statement, [int(match[1]), match[2]])
    if not rows:
        raise LeaseLost
    ((*values, claimed_at, now),) = rows
    delivery = Delivery.from_db(using, sql.RECEIPT_COLUMNS, values)
    place = by_id(delivery.group_id, delivery.partition_id, using)
    if place is None:
        raise LeaseLost
    delivery.group, delivery.partition = place
    return Named(delivery, instant(now) - instant(claimed_at))
