"""Defines send(), send_many() and asend(): they insert into the inbox, and do nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, connections, transaction

from streams import conf, telemetry
from streams.api import Outgoing, SendResult
from streams.database.retrying import connection_lost, reply_lost, tables_missing
from streams.database.sql import send as sql
from streams.database.transactions import in_own_block, latest_rows, manual
from streams.errors import (
    InvalidMessage,
    MixedShards,
    NotMigrated,
    SendOutcomeUnknown,
    WrongDatabase,
)
from streams.produce import together
from streams.produce.access import all_writable, make_sure, writable
from streams.produce.asynchronous import refuse_async
from streams.produce.dedup import hold, prepare, window_of
from streams.produce.insert import in_chunks, insert_chunk, insert_new, kept_cursor
from streams.produce.outgoing import Checked, Placed, checked_due, checked_row
from streams.produce.partitioning import choose
from streams.sharding import alias_of
from streams.wakeup import announce


def send(
    topic: str,
    body: Any = None,
    *,
    key: str | int | UUID | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    delay: timedelta | float | None = None,
    deliver_at: datetime | None = None,
    partition: int | None = None,
    dedup_key: str | int | UUID | None = None,
    dedup_window: timedelta | float | None = None,
    using: str | None = None,
) -> SendResult:
    """Send one message as part of the transaction that is open, or at once if there is none.

    It is delivered to every consumer group after the commit, and to none after a rollback.

    ``body`` is anything that DjangoJSONEncoder can write, or a str or bytes, and arrives as it
    was sent. ``key`` (at most 255 characters; of an int or a UUID its text) and ``tag`` (64) are
    kept with it; ``headers`` maps strings to strings. ``delay`` (a timedelta, or seconds) or
    ``deliver_at`` (an aware datetime) keeps it back; a time in the past means at once. ``using``
    names the database alias, by default that of the topic: ``EMS["SHARDS"]``, ``EMS["DATABASE"]``.

    Messages of one ``key`` go to one partition; ``partition`` chooses another one by its number.
    Of all sends to the topic with one ``dedup_key`` the first in ``dedup_window`` (a timedelta, or
    seconds; dedupWindowSeconds by default) is sent; for the others the result says ``duplicate``.
    A rollback of the first frees the key. The others wait for its transaction to end.

    Returns a :class:`SendResult`. Raises a :class:`StreamsError` before anything is written:
    UnknownTopic, TopicDenied, InvalidName, InvalidMessage, UnknownPartition, NotSerializable,
    MessageTooLarge, NaiveDatetime, WrongDatabase, NotMigrated, Disabled, and SynchronousOnly in
    async code, which awaits :func:`asend` instead. Outside a transaction it raises
    SendOutcomeUnknown if the connection breaks before the server has answered.
    """
    refuse_async("send", "asend(…)")
    if dedup_key is not None or dedup_window is not None:
        message = Outgoing(
            topic, body, key, tag, headers, delay, deliver_at, partition, dedup_key, dedup_window
        )
        return send_many([message], using=using)[0]
    if telemetry.active():
        message = Outgoing(topic, body, key, tag, headers, delay, deliver_at, partition)
        sending = Sending([message], using)
        return telemetry.run(telemetry.SEND, lambda: [_send(*sending.only)], sending)[0]
    return _send(topic, body, key, tag, headers, delay, deliver_at, partition, using)


def _send(
    topic: str,
    body: Any,
    key: str | int | UUID | None,
    tag: str,
    headers: Mapping[str, str] | None,
    delay: timedelta | float | None,
    deliver_at: datetime | None,
    partition: int | None,
    using: str | None,
) -> SendResult:
    alias = _alias(using, topic)
    due_at = None if delay is None and deliver_at is None else checked_due(delay, deliver_at)
    connection = connections[alias]
    in_doubt = False
    try:
        row = checked_row(alias, topic, body, key, tag, headers)
        looked_up = monotonic()
        if partition is not None:
            all_writable([Outgoing(topic, partition=partition)], alias)
        info = writable(topic, alias)
        partition_id, number = choose(topic, info.partitions, row.key, headers, partition)
        values, parameters = row.values(connection.vendor, partition_id, due_at)
        # A kept cursor holds its last statement in memory: a large body gets its own cursor.
        small = len(row.body) <= sql.HEX_BYTES

        def insert_alone() -> int:
            nonlocal in_doubt
            cursor = kept_cursor(connection) if small else connection.cursor()
            in_doubt = connection.autocommit
            cursor.execute(sql.INSERT_MESSAGES + values, parameters)
            return int(cursor.lastrowid)

        if partition is None and together.is_wanted(connection):
            in_doubt = True
            placed = Placed(info.name, number, None, None, row.size, values, parameters)
            message_id = together.insert(alias, placed, insert_alone)
        else:
            message_id = insert_alone()
        if monotonic() - looked_up > conf.SURE_SECONDS:
            make_sure([info], [message_id], alias)
    except (DatabaseError, InterfaceError) as error:
        raise _translated(error, alias, in_doubt) from error
    _announce(alias, (topic,))
    return SendResult(message_id, info.name, number)


def send_many(messages: Iterable[Outgoing], *, using: str | None = None) -> list[SendResult]:
    """Send all messages or none; the arguments and errors are those of :func:`send`.

    Returns the results in the order of ``messages``. Of several with one ``dedup_key`` the first
    is sent, if none was before. Raises MixedShards before anything is written if the topics are on
    several databases and ``using`` is not given.
    """
    refuse_async("send_many", "sync_to_async(send_many)(…)")
    if telemetry.active():
        sending = Sending(list(messages), using, many=True)
        return telemetry.run(telemetry.SEND, lambda: _send_many(sending.messages, using), sending)
    return _send_many(messages, using)


def _send_many(messages: Iterable[Outgoing], using: str | None) -> list[SendResult]:
    given = list(messages)
    for message in given:
        if not isinstance(message, Outgoing):
            raise InvalidMessage(f"send_many() takes Outgoing(…), not {type(message)!r}.")
    if not given:
        return []
    alias = _alias(using, one_of_all(given) if using is None else "")
    connection = connections[alias]
    checked: list[Checked] = []
    in_doubt = False
    try:
        for message in given:
            due_at = checked_due(message.delay, message.deliver_at)
            window = window_of(message.dedup_key, message.dedup_window, alias)
            row = checked_row(
                alias, message.topic, message.body, message.key, message.tag, message.headers
            )
            checked.append(Checked(message, due_at, window, row))
        looked_up = monotonic()
        topics = all_writable([one.message for one in checked], alias)
        placed = [one.placed(topics[one.message.topic], connection.vendor) for one in checked]
        slots = {one.slot for one in placed if one.slot}
        prepare(slots, alias)
        in_doubt = connection.get_autocommit()
        if not slots and len(chunks := list(in_chunks(placed))) == 1:
            ids = insert_chunk(alias, chunks[0])
            results = [one.result(id_) for one, id_ in zip(placed, ids, strict=True)]
            if monotonic() - looked_up > conf.SURE_SECONDS:
                make_sure(topics.values(), ids, alias)
        else:
            commits, in_doubt = in_doubt, False  # what is lost before the commit is not sent
            with transaction.atomic(using=alias), latest_rows(alias):
                results = insert_new(alias, placed, hold(slots, alias))
                if monotonic() - looked_up > conf.SURE_SECONDS:
                    ours = [one.message_id for one in results if not one.duplicate]
                    make_sure(topics.values(), ours, alias)
                in_doubt = commits
    except (DatabaseError, InterfaceError) as error:
        raise _translated(error, alias, in_doubt) from error
    _announce(alias, topics)
    return results


async def asend(
    topic: str,
    body: Any = None,
    *,
    key: str | int | UUID | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    delay: timedelta | float | None = None,
    deliver_at: datetime | None = None,
    partition: int | None = None,
    dedup_key: str | int | UUID | None = None,
    dedup_window: timedelta | float | None = None,
    using: str | None = None,
) -> SendResult:
    """:func:`send` for async code.

    Async code has no transactions, so it joins none. Under ``async_to_sync`` inside ``atomic()``
    it joins the transaction of the sync thread that waits for it.
    """
    return await sync_to_async(send)(
        topic,
        body,
        key=key,
        tag=tag,
        headers=headers,
        delay=delay,
        deliver_at=deliver_at,
        partition=partition,
        dedup_key=dedup_key,
        dedup_window=dedup_window,
        using=using,
    )


@dataclass
class Sending:
    """A call of ``send()`` or ``send_many()``; an observer may replace ``messages``."""

    messages: list[Outgoing]
    using: str | None
    many: bool = False

    @property
    def only(self) -> tuple[Any, ...]:
        """Return the arguments of _send() for a single message."""
        one = self.messages[0]
        first = one.topic, one.body, one.key, one.tag, one.headers
        return *first, one.delay, one.deliver_at, one.partition, self.using

    @property
    def alias(self) -> str:
        """The alias that is sent on; that of the first topic if there are several."""
        topic = getattr(self.messages[0], "topic", "") if self.messages else ""
        return self.using or alias_of(topic)


def one_of_all(messages: list[Outgoing]) -> str:
    """Return one of the topics, which are all on one alias; raises MixedShards."""
    first = messages[0].topic
    if conf.settings().SHARDS:
        alias = alias_of(first)
        for message in messages:
            if (other := alias_of(message.topic)) != alias:
                raise MixedShards(
                    f"{first} is on {alias!r} and {message.topic} on {other!r}, so they cannot be"
                    " sent all or none: send to each database by itself."
                )
    return first


def _alias(using: str | None, topic: str) -> str:
    """Return the alias to send on; raises WrongDatabase if a transaction is open on another.

    And Disabled in a process in which EMS is off: every send comes here before anything else.
    """
    conf.make_sure_enabled()
    if using is not None:
        return using
    alias = alias_of(topic)
    if len(connections.settings) > 1 and not in_own_block(connections[alias]):
        for other in connections.all(initialized_only=True):
            if other.alias != alias and in_own_block(other):
                raise WrongDatabase(
                    f"The open transaction is on {other.alias!r}, but the topic {topic} is on"
                    f" {alias!r}: a rollback would not take the message back. Pass"
                    f" using={alias!r} to send anyway."
                )
    return alias


def _translated(error: Exception, alias: str, in_doubt: bool) -> Exception:
    """Return the error to raise in place of one that the database gave.

    A lost connection is closed, so that the next send opens another: outside a request, which ends
    with that, a producer would never send again. Inside a transaction its owner has to end it.
    """
    connection = connections[alias]
    if connection_lost(error) and connection.autocommit and not connection.in_atomic_block:
        connection.close()
    if tables_missing(error):
        return NotMigrated.on(alias)
    if in_doubt and reply_lost(error):
        return SendOutcomeUnknown()
    return error


def _announce(alias: str, topics: Iterable[str]) -> None:
    """Wake the consumers after the commit. Without Redis they find the messages by polling."""
    # Without autocommit Django has no on_commit: consumers poll then, too.
    if conf.settings().REDIS is not None and not manual(alias):
        transaction.on_commit(lambda: announce(alias, topics), using=alias, robust=True)
