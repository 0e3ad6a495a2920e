"""Defines cancel(), which takes back a delayed message that is not visible yet."""

from __future__ import annotations

from typing import Any, Literal

from django.db import connections

from streams import conf
from streams.api import SendResult
from streams.database.elsewhere import elsewhere
from streams.database.sql import send as sql
from streams.database.sql.dialect import delete_by_id, execute, fetch
from streams.database.transactions import own_transaction, sees_the_past
from streams.errors import InvalidMessage
from streams.produce.asynchronous import refuse_async
from streams.sharding import alias_of, is_sharded


def cancel(
    message_id: SendResult | int, *, topic: str | None = None, using: str | None = None
) -> Literal["cancelled", "visible", "unknown"]:
    """Take back a delayed message, as part of the transaction that is open, or at once.

    ``message_id`` is what ``send()`` returned, or the id in it, with its ``topic`` if it was kept
    for long: a message of another topic or partition is not taken back. After ``TRUNCATE ems_msg``
    ids begin again, so an id alone may name another message then. With ``EMS["SHARDS"]`` each
    database has ids of its own, so the topic, or ``using``, is needed.

    Returns "cancelled" if it is gone and its dedup key is free again; "visible" if it is too late
    or the message was not delayed: groups have it or will have it at once; "unknown" if there is
    no such message: it was cancelled before, or purged. Raises InvalidMessage if ``message_id``
    is neither a SendResult nor an integer, or does not say on which of several databases it is.
    """
    refuse_async("cancel", "sync_to_async(cancel)(…)")
    conf.make_sure_enabled()
    given: Any = message_id
    number = None
    if isinstance(given, SendResult):
        topic, number, given = topic or given.topic, given.partition, given.message_id
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidMessage(
            f"cancel() takes a SendResult, or the message_id of one, not {message_id!r}."
        )
    if topic is None and using is None and is_sharded():
        text = "Each of several databases has a message %d: say which one."
        raise InvalidMessage(text % given)
    alias = using or (conf.database() if topic is None else alias_of(topic))
    vendor = connections[alias].vendor
    past = sees_the_past(alias)
    with own_transaction(alias):
        # The row is read first. If there is none, a DELETE may lock the gap into which new messages
        # are inserted; and a lock on an immediate one would stop its partition until the caller's
        # commit.
        found = _find(given, alias)
        if not found and past:
            found = elsewhere(alias, lambda: _find(given, alias))
        if not found or not _is_at(found[0], topic, number):
            return "unknown"
        if not found[0][0]:
            return "visible"
        delete = delete_by_id(vendor, "ems_msg", [given], sql.CANCELLABLE)
        if not execute(alias, delete):
            # The message was sequenced since, or cancelled by a transaction whose commit this one
            # has waited for. A locking read tells which, at any isolation level of the caller.
            still = fetch(alias, sql.LOCK_MESSAGE[vendor], [given])
            return "visible" if still else "unknown"
        for _delayed, key, *_place in found:
            if key is not None:
                execute(alias, sql.FREE_DEDUP[vendor], [key, given])
    return "cancelled"


def _find(message_id: int, using: str) -> list[Any]:
    """Return [(whether it can be cancelled, id of its dedup row, topic, partition)], or []."""
    return fetch(using, sql.FIND_MESSAGE, [message_id])


def _is_at(row: Any, topic: str | None, number: int | None) -> bool:
    """Tell whether the message found is of this topic and partition, where these are known."""
    _delayed, _key, its_topic, its_number = row
    same = topic is None or conf.name_prefix() + topic == its_topic  # as it is stored
    return same and number in (None, its_number)
