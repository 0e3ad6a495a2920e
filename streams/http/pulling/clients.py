"""Keeps the leases of clients that pull: they send no heartbeat, each of their calls renews."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import IntegrityError, connections
from django.db.models import F
from django.db.models.functions import Greatest

from streams.conf import LEASE_SECONDS
from streams.database.clock import instant
from streams.database.remembered import Forgettable
from streams.database.retrying import retrying
from streams.database.sql import pull as sql
from streams.database.sql.dialect import execute, fetch, later, numbers
from streams.http.pulling.groups import PulledGroup, deleted
from streams.models import Consumer, UtcNow
from streams.rules.names import validated_name

# The most characters of the name that a client gives itself.
MAX_CLIENT = 127
# A lease outlasts what it is for by 5 … 10 s, so a client that calls all the time costs one
# statement in five seconds. It is less than LEASE_SECONDS: a lease that ends later than that after
# the deadline of a delivery says that the client was seen after it (consume/outcome/expire.py).
AT_LEAST, AT_MOST = 5.0, 10.0
# As many leases as a process remembers; then it starts anew.
REMEMBERED = 10_000


class HoldsAlone(Exception):
    """The client holds a message that runs alone: it gets no other until that is settled."""


# By alias, client and group: until when, on the monotonic clock, the lease holds at least.
_known: Forgettable[tuple[str, str, int], float] = Forgettable()


def client_id(prefix: str, client: str) -> str:
    """Return the id in ``ems_client`` of ``client``, as the token ``prefix`` calls it.

    Raises InvalidName.
    """
    return f"http@{prefix}@{validated_name(client, 'client', MAX_CLIENT)}"


def keep_while_holding(client: str, group: PulledGroup, hold: float) -> None:
    """Let the lease of a client that asks, and waits for at most ``hold`` seconds, last as long.

    Raises UnknownGroup if the group has been deleted since this process has read it.
    """
    using, group_id = group.using, group.group.pk
    key = using, client, group_id
    now = time.monotonic()
    seconds = max(LEASE_SECONDS - AT_MOST, hold)
    if _known.get(key, 0.0) >= now + seconds + AT_LEAST:
        return
    try:
        keep_lease(client, group_id, seconds, using)
    except IntegrityError as error:
        raise deleted(group) from error
    if len(_known) >= REMEMBERED:
        _known.clear()
    _known[key] = now + seconds + AT_MOST


def keep_lease(client: str, group_id: int, seconds: float, using: str) -> None:
    """Let the lease of ``client`` in the group last ``seconds`` and some more; never shorten it.

    ``expired()`` takes every delivery whose client has no lease, whatever its deadline.
    """
    retrying(_write, using, client, group_id, timedelta(seconds=seconds + AT_MOST), using)


def holds_alone(client: str, group_id: int, using: str) -> bool:
    """Tell whether the client holds a message that runs alone."""
    place = [group_id, client] * 2
    return bool(retrying(fetch, using, using, sql.HOLDS_ALONE, place)[0][0])


def deadlines(
    client: str,
    group_id: int,
    deliveries: Collection[int],
    timeout: timedelta,
    using: str,
    *,
    are_new: bool = True,
) -> dict[int, datetime]:
    """Return the deadlines of ``deliveries``, once the lease of their client lasts as long.

    A delivery that has been taken away meanwhile is absent. The lease is read each time: the client
    may have left through another process, which has deleted it. Raises HoldsAlone, if they
    ``are_new``: what the client holds already, it keeps.
    """
    statement = sql.DEADLINES.format(ids=numbers(deliveries))
    place = [client, group_id, *[group_id, client] * 2]
    found = retrying(fetch, using, using, statement, place)
    if are_new and any(alone for *_delivery, alone in found):
        raise HoldsAlone
    if not all(lasts for _pk, _deadline, lasts, _alone in found):
        keep_lease(client, group_id, timeout.total_seconds(), using)
    return {pk: instant(deadline) for pk, deadline, _lasts, _alone in found}


def _write(client: str, group_id: int, lease: timedelta, using: str) -> None:
    rows = Consumer.objects.using(using).filter(client_id=client, group=group_id)
    if rows.update(lease_until=Greatest(F("lease_until"), UtcNow(lease))):
        return
    # Another process may insert it at the same time.
    vendor = connections[using].vendor
    execute(using, sql.UPSERT_CLIENT[vendor], [client, group_id, later(vendor, lease)])


def leave(client: str, group_id: int, using: str) -> None:
    """Delete the client, which holds nothing any more."""
    _known.pop((using, client, group_id), None)
    rows = Consumer.objects.using(using).filter(client_id=client, group=group_id)
    retrying(rows.delete, using)
