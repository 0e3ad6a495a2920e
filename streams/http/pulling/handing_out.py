"""Hands out what a client pulls: claims, reads, and drops what nobody can handle any more."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import Error, connections

from streams.api import ReceivedMessage
from streams.body import BYTES
from streams.conf import CLAIM_BYTES, FRESH_SECONDS
from streams.consume.limits import Limits
from streams.consume.outcome.settle import release
from streams.database.remembered import Fresh
from streams.database.retrying import retrying
from streams.database.sql import pull as sql
from streams.database.sql.dialect import fetch
from streams.deliver.opening import hold, open_whole
from streams.deliver.turns import Claimed, Turns
from streams.errors import LeaseLost
from streams.http.pulling.clients import HoldsAlone, deadlines, holds_alone, keep_while_holding
from streams.http.pulling.groups import REPEATED, THREAD, PulledGroup
from streams.http.pulling.outcomes import tell
from streams.http.pulling.receipts import Named, remember
from streams.logs import event
from streams.models import Delivery, Kind, RetryMessage

logger = logging.getLogger("streams.http")

# An answer of so many bytes gets no further delivery.
ENOUGH_BYTES = CLAIM_BYTES // 4

# By alias, client and group: a client that held a message that runs alone, and may still.
_alone: Fresh[tuple[str, str, int], bool] = Fresh()


@dataclass(frozen=True)
class Asked:
    """What a client asks for: at most ``batch`` messages, each handled in ``timeout``."""

    client: str  # its id in ems_client
    batch: int
    timeout: timedelta
    hold: float = 0.0  # seconds
    request_id: str = ""

    @property
    def token(self) -> str:
        """Return the token of all that a request with an id gets; "" without an id."""
        if not self.request_id:
            return ""
        named = f"{len(self.client)}:{self.client}:{self.request_id}"
        return hashlib.sha256(named.encode()).hexdigest()[:32]


@dataclass
class Handed:
    """A delivery as it is handed out: its open offsets are exactly those of ``messages``."""

    delivery: Delivery
    messages: Sequence[ReceivedMessage]
    deadline: datetime | None = None


class Found(NamedTuple):
    """What a look for a client has found; ``leaves_more``: perhaps not all that there is."""

    handed: Sequence[Handed] = ()
    leaves_more: bool = False
    paused: bool = False


def hand_out(group: PulledGroup, limits: Limits, asked: Asked) -> Found:
    """Claim for the client; return what it is to handle, or nothing.

    An answer has one message that failed before, or new ones: whoever dies spends an attempt of all
    that it has in hand, and a message that is retried may be what it dies of. A message that runs
    alone is the only one, and its client gets nothing more until it is settled.
    """
    if asked.token and (before := _handed_before(group, limits, asked)):
        return Found(_with_deadlines(before, group, asked, are_new=False), leaves_more=True)
    key = group.using, asked.client, group.group.pk
    if _alone.fresh(key) and holds_alone(asked.client, group.group.pk, group.using):
        return Found()
    keep_while_holding(asked.client, group, asked.hold)
    out: list[Handed] = []
    try:
        with group.turns(asked.client, asked.token, limits.rate) as turns:
            leaves_more = turns.claimer.starts.look() and _claim_all(
                *(group, turns, limits, asked, out)
            )
            group.held_until = turns.claimer.starts.held_until
        return Found(_with_deadlines(out, group, asked), leaves_more)
    except HoldsAlone:
        # Hardly any client does, so it is asked with the deadlines. Who does is asked first from
        # now on: what is given back each time would be claimed each time.
        _alone.keep(key, True, time.monotonic() + FRESH_SECONDS, group.using)
        take_back(out)
        return Found(leaves_more=True)
    except BaseException as error:
        if not isinstance(error, Error):  # without a database they expire
            take_back(out)
        raise


def take_back(out: Sequence[Handed]) -> None:
    """Release what was handed out to a client that is gone; what cannot be released expires.

    What a repeated request has got meanwhile stays with it: its thread is REPEATED.
    """
    for handed in out:
        try:
            with suppress(LeaseLost):
                release(handed.delivery, thread=THREAD)
        except Error as error:
            logger.warning(
                "Delivery %d, whose client is gone, cannot be released, and will expire: %s",
                *(handed.delivery.pk, error),
                extra=event("http.not_released", delivery=handed.delivery.pk),
            )


def _claim_all(
    group: PulledGroup, turns: Turns, limits: Limits, asked: Asked, out: list[Handed]
) -> bool:
    """Claim until the answer is full or nothing is left; ``out`` has what is handed out.

    Returns whether something may be left.
    """
    left, weight = asked.batch, 0
    while left > 0 and weight < ENOUGH_BYTES:
        claim = turns.claim_new if out else turns.claim
        claimed = None
        with suppress(LeaseLost):  # an earlier claim was in doubt: see claim_retry()
            claimed = claim(left, asked.timeout)
        if claimed is None:
            return False
        delivery, retry = claimed
        by_itself = retry is not None or delivery.alone or delivery.attempt > 1
        if by_itself and out:
            take_back([Handed(delivery, [])])
            turns.claimer.turn -= 1  # it comes first the next time
            return True
        messages = _opened(group, claimed, limits, asked.timeout)
        if not messages:
            continue
        out.append(Handed(delivery, messages))
        left -= len(messages)
        weight += sum(message.size for message in messages)
        if by_itself:
            break
    return True


def _opened(
    group: PulledGroup, claimed: Claimed, limits: Limits, timeout: timedelta
) -> Sequence[ReceivedMessage]:
    """Return the messages of the delivery; none if it is not to be handed out."""
    delivery, retry = claimed
    try:
        opened = open_whole(delivery, retry, limits, group.registration, _damage)
        if opened.closed:
            tell(delivery, opened.closed)
        if opened.messages:
            hold(delivery, opened.messages)
            # Whoever it is handed to may have it before anything is heard of it.
            if delivery.counts_starts(is_last=limits.one_call) and delivery.started_at is None:
                delivery.start(timeout)
    except LeaseLost:
        return []
    except Error:
        raise
    except BaseException:
        take_back([Handed(delivery, [])])
        raise
    return opened.messages


def _damage(message: ReceivedMessage) -> Exception | None:
    """Return why no answer can have the body; the message keeps what is read of it here."""
    try:
        raw = message.raw_body
        if message.body_type != BYTES:
            raw.decode()
    except ValueError as error:  # DamagedBody, or not UTF-8
        return error
    return None


def _handed_before(group: PulledGroup, limits: Limits, asked: Asked) -> list[Handed]:
    """Return what an earlier request with the same id got, whose answer may have been lost.

    That request may be undone at this moment, in any process: what is returned is marked before.
    """
    vendor = connections[group.using].vendor
    place = [group.group.pk, asked.token, asked.client]
    ids = retrying(fetch, group.using, group.using, sql.HANDED_BEFORE[vendor], place)
    rows = Delivery.objects.using(group.using).held().filter(pk__in=[pk for (pk,) in ids])
    out = []
    for delivery in rows.select_related("group__topic", "partition").order_by("pk"):
        held = RetryMessage.objects.using(group.using).filter(
            group=group.group.pk, delivery=delivery.pk
        )
        retry = held.first() if delivery.kind == Kind.RETRY else None
        if not retrying(_mark_repeated, group.using, delivery):
            continue
        # Who claimed it may have died before it had spent the attempt.
        if messages := _opened(group, Claimed(delivery, retry), limits, asked.timeout):
            out.append(Handed(delivery, messages))
    return out


def _mark_repeated(delivery: Delivery) -> bool:
    return bool(delivery.held().update(thread=REPEATED))


def _with_deadlines(
    out: list[Handed], group: PulledGroup, asked: Asked, *, are_new: bool = True
) -> list[Handed]:
    """Return those of ``out`` that are still held, with their deadlines. Raises HoldsAlone."""
    if not out:
        return []
    ids = [handed.delivery.pk for handed in out]
    place = asked.client, group.group.pk
    found = deadlines(*place, ids, asked.timeout, group.using, are_new=are_new)
    for handed in out:
        handed.deadline = found.get(handed.delivery.pk)
    held = [handed for handed in out if handed.deadline]
    for handed in held:
        remember(Named(handed.delivery))
    return held
