"""send(): one INSERT into the inbox, in the caller's transaction. Nothing else."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.utils.translation import gettext as _

from streams import conf, sql
from streams.api import Outgoing, SendResult
from streams.body import encode
from streams.errors import (
    InvalidMessage,
    MessageTooLarge,
    NaiveDatetime,
    NotMigrated,
    SendOutcomeUnknown,
    TopicDenied,
    UnknownTopic,
    WrongDatabase,
)
from streams.topics import TopicInfo, resolve, validated_name
from streams.transactions import error_number, manual, tables_missing

# Literals that must equal those of the models, which cannot be imported before the apps are
# ready; tests/streams/test_producer.py compares them.
MAX_NAME, MAX_KEY, MAX_TAG, MAX_PRODUCER = 127, 255, 64, 190
WRITABLE = frozenset({"read-write", "write-only"})

# A multi-row INSERT holds at most this many rows and bytes: well below max_allowed_packet.
CHUNK_ROWS = 500
CHUNK_BYTES = 1024 * 1024

# The connection broke while the server may have been at work. 2006 is not among them: the
# statement did not leave this process.
REPLY_LOST = {1053, 1927, 2013, 2055}


def send(
    topic: str,
    body: Any = None,
    *,
    key: str | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    delay: timedelta | float | None = None,
    deliver_at: datetime | None = None,
    using: str | None = None,
) -> SendResult:
    """Send one message as part of the transaction that is open, or at once if there is none.

    It is delivered to every consumer group after the commit; after a rollback, never.

    ``body`` is anything that DjangoJSONEncoder can write, or a str or bytes, and arrives as it
    was sent. ``key`` (at most 255 characters) and ``tag`` (64) are kept with it; ``headers`` maps
    strings to strings. ``delay`` (a timedelta, or seconds) or ``deliver_at`` (an aware datetime)
    keeps it back; a time in the past means at once. ``using`` names the database alias,
    ``EMS["DATABASE"]`` by default.

    Returns a :class:`SendResult`. Raises a :class:`StreamsError` before anything is written:
    UnknownTopic, TopicDenied, InvalidName, InvalidMessage, NotSerializable, MessageTooLarge,
    NaiveDatetime, WrongDatabase, NotMigrated. Outside a transaction it raises
    SendOutcomeUnknown if the connection breaks before the server has answered.
    """
    alias = _alias(using)
    due_at = None if delay is None and deliver_at is None else _due_at(delay, deliver_at)
    connection = connections[alias]
    in_doubt = False
    try:
        row = _prepare(alias, topic, body, key, tag, headers)
        info = _writable(topic, alias)
        partition_id, number = info.partitions[0]
        values, parameters = row.values(connection.vendor, partition_id, due_at)
        # A kept cursor remembers its last statement: not one with a large body.
        small = len(row.body) <= sql.HEX_BYTES
        cursor = _kept_cursor(connection) if small else connection.cursor()
        in_doubt = connection.autocommit
        cursor.execute(sql.INSERT_MESSAGES + values, parameters)
        message_id = cursor.lastrowid
    except (DatabaseError, InterfaceError) as error:
        raise _translated(error, alias, in_doubt) from error
    _announce(alias)
    return SendResult(message_id, info.name, number)


def send_many(messages: Iterable[Outgoing], *, using: str | None = None) -> list[SendResult]:
    """Send all messages or none; the arguments and errors are those of :func:`send`.

    Returns the results in the order of ``messages``.
    """
    alias = _alias(using)
    connection = connections[alias]
    checked: list[tuple[str, timedelta | datetime | None, Row]] = []
    in_doubt = False
    try:
        for message in messages:
            if not isinstance(message, Outgoing):
                raise InvalidMessage(_("send_many() takes Outgoing(…), not %r.") % type(message))
            due_at = _due_at(message.delay, message.deliver_at)
            row = _prepare(
                alias, message.topic, message.body, message.key, message.tag, message.headers
            )
            checked.append((message.topic, due_at, row))
        if not checked:
            return []
        topics = _all_writable([topic for topic, _due, _row in checked], alias)
        rows = [
            (row.size, *row.values(connection.vendor, topics[topic].partitions[0][0], due_at))
            for topic, due_at, row in checked
        ]
        chunks = list(_chunks(rows))
        in_doubt = connection.get_autocommit()
        if len(chunks) == 1:
            ids = _insert(alias, chunks[0])
        else:
            with transaction.atomic(using=alias):
                ids = [id_ for chunk in chunks for id_ in _insert(alias, chunk)]
    except (DatabaseError, InterfaceError) as error:
        raise _translated(error, alias, in_doubt) from error
    _announce(alias)
    return [
        SendResult(id_, topic, topics[topic].partitions[0][1])
        for id_, (topic, _due, _row) in zip(ids, checked, strict=True)
    ]


async def asend(
    topic: str,
    body: Any = None,
    *,
    key: str | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    delay: timedelta | float | None = None,
    deliver_at: datetime | None = None,
    using: str | None = None,
) -> SendResult:
    """:func:`send` for async code.

    It joins no transaction of async code, which has none; under ``async_to_sync`` inside
    ``atomic()`` it joins that of the sync thread that waits for it.
    """
    return await sync_to_async(send)(
        topic,
        body,
        key=key,
        tag=tag,
        headers=headers,
        delay=delay,
        deliver_at=deliver_at,
        using=using,
    )


class Row(NamedTuple):
    """A message that has been checked, but for its topic."""

    key: str | None
    tag: str
    headers: str | None
    body: bytes
    body_type: str

    @property
    def size(self) -> int:
        return len(self.body) + len(self.headers or "")

    def values(
        self, vendor: str, partition_id: int, due_at: timedelta | datetime | None
    ) -> tuple[str, tuple[Any, ...]]:
        """One row of INSERT_MESSAGES, and its parameters."""
        key, tag, headers, body, body_type = self
        due_sql, parameters = _due_sql(vendor, due_at)
        named = key is not None or tag != "" or headers is not None
        if named:
            parameters += key, tag, headers
        if len(body) > sql.HEX_BYTES:
            parameters += (body,)
        producer, identity = _producer()
        values = sql.message_values(
            vendor, partition_id, due_sql, body, body_type, producer, named=named
        )
        return values, parameters + identity


def _alias(using: str | None) -> str:
    """The alias to send on; raises WrongDatabase if the open transaction is on another one."""
    if using is not None:
        return using
    alias = conf.settings().DATABASE
    if len(connections.settings) > 1 and not connections[alias].in_atomic_block:
        for other in connections.all(initialized_only=True):
            if other.in_atomic_block and other.alias != alias:
                raise WrongDatabase(
                    _(
                        "The open transaction is on %(other)r, but EMS is on %(alias)r: a rollback"
                        " would not take the message back. Pass using=%(alias)r to send anyway."
                    )
                    % {"other": other.alias, "alias": alias}
                )
    return alias


def _prepare(
    alias: str,
    topic: str,
    body: Any,
    key: str | None,
    tag: str,
    headers: Mapping[str, str] | None,
) -> Row:
    """Check everything but the topic's existence and access."""
    validated_name(topic, "topic", MAX_NAME)
    if key is not None:
        validated_name(key, "key", MAX_KEY)
    if tag != "":
        validated_name(tag, "tag", MAX_TAG)
    raw, body_type = encode(body)
    limit = conf.system("msgMaxSizeInBytes", alias)
    headers_json = None if headers is None else _headers(headers)
    size = len(raw) + len(headers_json or "")
    if size > limit:
        raise MessageTooLarge(
            _("Body and headers have %(size)d bytes; msgMaxSizeInBytes is %(limit)d.")
            % {"size": size, "limit": limit}
        )
    return Row(key, tag, headers_json, raw, body_type)


def _writable(topic: str, alias: str, *, create: bool | None = None) -> TopicInfo:
    info = resolve(topic, alias, create=create)
    if info.access not in WRITABLE:
        raise TopicDenied(
            _("The topic %(topic)r is %(access)s: it takes no messages at present.")
            % {"topic": topic, "access": info.access}
        )
    return info


def _all_writable(topics: Iterable[str], alias: str) -> dict[str, TopicInfo]:
    """The topics of these names. Missing ones are created when nothing can be wrong any more."""
    found: dict[str, TopicInfo | None] = dict.fromkeys(topics)
    for topic in found:
        with suppress(UnknownTopic):
            found[topic] = _writable(topic, alias, create=False)
    return {topic: info or _writable(topic, alias) for topic, info in found.items()}


def _headers(headers: Any) -> str:
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise InvalidMessage(_("headers must map strings to strings."))
    try:
        "".join((*headers, *headers.values())).encode()
    except UnicodeEncodeError as error:  # MySQL refuses it, and it could not be read back
        raise InvalidMessage(_("headers must be valid text: %s") % error) from error
    return json.dumps(dict(headers))


def _due_at(delay: Any, deliver_at: Any) -> timedelta | datetime | None:
    """The one that is given, checked; None: at once."""
    if deliver_at is not None:
        if delay is not None:
            raise InvalidMessage(_("Give delay or deliver_at, not both."))
        if not isinstance(deliver_at, datetime):
            raise InvalidMessage(_("deliver_at must be a datetime, not %r.") % (deliver_at,))
        if deliver_at.utcoffset() is None:
            raise NaiveDatetime
        try:
            return deliver_at.astimezone(UTC)
        except OverflowError:
            raise InvalidMessage(_("deliver_at is out of range: %s.") % deliver_at) from None
    if delay is None:
        return None
    if isinstance(delay, timedelta):
        duration = delay
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        try:
            duration = timedelta(seconds=delay)
        except (OverflowError, ValueError):  # too large, or not a number
            raise InvalidMessage(_("The delay is too long, or no number.")) from None
    else:
        raise InvalidMessage(_("delay must be a timedelta or seconds, not %r.") % (delay,))
    if duration < timedelta(0):
        raise InvalidMessage(_("A delay cannot be negative."))
    if duration > MAX_DELAY:
        raise InvalidMessage(_("The delay %s is too long.") % duration)
    return duration or None


# A century: beyond it, dates leave the range of a server's DATETIME sooner or later.
MAX_DELAY = timedelta(days=36525)


def _due_sql(vendor: str, due_at: timedelta | datetime | None) -> tuple[str, tuple[Any, ...]]:
    if due_at is None:
        return sql.DUE_IMMEDIATELY, ()
    if isinstance(due_at, timedelta):
        return sql.LATER[vendor], (sql.later(vendor, due_at),)
    text = str(due_at.replace(tzinfo=None))
    return sql.DUE_AT[vendor], (text, text)


# The size of a row, its SQL and its parameters.
_Values = tuple[int, str, tuple[Any, ...]]


def _chunks(rows: list[_Values]) -> Iterator[list[_Values]]:
    chunk: list[_Values] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == CHUNK_ROWS or size + row[0] > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row[0]
    yield chunk


def _insert(alias: str, chunk: list[_Values]) -> list[int]:
    """One multi-row INSERT; the new ids in the order of the rows."""
    connection = connections[alias]
    statement = sql.INSERT_MESSAGES + ", ".join(values for _size, values, _parameters in chunk)
    parameters = [value for _size, _values, row in chunk for value in row]
    returning = connection.features.can_return_rows_from_bulk_insert
    with connection.cursor() as cursor:
        cursor.execute(statement + (" RETURNING `id`" if returning else ""), parameters)
        if returning:
            return sorted(id_ for (id_,) in cursor.fetchall())
        first = cursor.lastrowid
        if len(chunk) == 1:
            return [first]
        # MySQL: the ids of one multi-row VALUES are contiguous, in steps of the increment, which
        # a cluster sets to the number of its primaries.
        cursor.execute("SELECT @@SESSION.auto_increment_increment")
        (step,) = cursor.fetchone()
        return list(range(first, first + step * len(chunk), step))


def _kept_cursor(connection: Any) -> Any:
    """A cursor of this connection, open and kept for the next send.

    Django's ``cursor()`` and the closing of what it returns cost more than all the rest of a send
    (docs/benchmarks/core.md). Its checks are made here each time; whoever logs queries gets a
    cursor that does, and execute() itself is Django's.
    """
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_thread_sharing()
    if connection.queries_logged:
        return connection.cursor()
    kept = connection.__dict__.get("_ems_cursor")
    if kept is None or kept[0] is not connection.connection:
        kept = connection._ems_cursor = (connection.connection, connection.cursor())
    return kept[1]


def _translated(error: Exception, alias: str, in_doubt: bool) -> Exception:
    """The error to raise in place of one that the database gave."""
    if tables_missing(error):
        return NotMigrated.on(alias)
    if in_doubt and _reply_lost(error):
        return SendOutcomeUnknown()
    return error


def _reply_lost(error: BaseException | None) -> bool:
    """Also if the server was away right after: at the end of a transaction Django reconnects."""
    while error and error_number(error) not in REPLY_LOST:
        error = error.__context__
    return error is not None


def _announce(alias: str) -> None:
    """Wake the consumers after the commit. Without Redis they find out by polling."""
    # Without autocommit Django offers no on_commit: they find out by polling then, too.
    if conf.settings().REDIS is not None and not manual(alias):
        from streams.runtime.wakeup import announce

        transaction.on_commit(lambda: announce(alias), using=alias, robust=True)


_identity = threading.local()
# A forked process is another producer.
os.register_at_fork(after_in_child=lambda: _identity.__dict__.clear())


def _producer() -> tuple[str, tuple[str, ...]]:
    """ "ip@pid@thread", for the trace: as SQL, and its parameter if it needs one."""
    try:
        return _identity.sql  # type: ignore[no-any-return]
    except AttributeError:
        text = f"{host()}@{os.getpid()}@{threading.current_thread().name}"[:MAX_PRODUCER]
        plain = re.fullmatch(r"[\w.:@ ()-]*", text, re.ASCII)
        _identity.sql = (f"'{text}'", ()) if plain else ("%s", (text,))
        return _producer()


_host: str | None = None


def host() -> str:
    """The address that this machine sends from, or its name if it has none.

    Asked of the routing table, by a datagram socket that sends nothing (192.0.2.1 is for
    documentation, RFC 5737): a name server that does not answer must not hold up a send.
    """
    global _host
    if _host is None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                _host = str(probe.getsockname()[0])
            except OSError:
                _host = socket.gethostname()
    return _host
