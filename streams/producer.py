"""send(): one INSERT into the inbox, in the caller's transaction. Nothing else."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.utils.translation import gettext as _

from streams import conf, sql
from streams.api import Outgoing, SendResult
from streams.body import encode
from streams.dedup import DedupSlot, Holder, hold, prepare, slot_of, take, window_of
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
from streams.partitions import choose
from streams.topics import TopicInfo, forget, look_again, resolve, validated_name
from streams.transactions import error_number, manual, tables_missing

# Literals that must equal those of the models, which cannot be imported before the apps are
# ready; tests/streams/test_producer.py compares them.
MAX_NAME, MAX_KEY, MAX_TAG, MAX_PRODUCER = 127, 255, 64, 190
WRITABLE = frozenset({"read-write", "write-only"})

# A topic that is created by a send has one partition.
NEW_TOPIC = ((0, 0),)

# A multi-row INSERT holds at most this many rows and bytes: well below max_allowed_packet.
CHUNK_ROWS = 500
CHUNK_BYTES = 1024 * 1024

# The connection broke while the server may have been at work. 2006 is not among them: the
# statement did not leave this process. 2026 is what a broken TLS connection says.
REPLY_LOST = {1053, 1927, 2013, 2026, 2055}


def send(
    topic: str,
    body: Any = None,
    *,
    key: str | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    delay: timedelta | float | None = None,
    deliver_at: datetime | None = None,
    partition: int | None = None,
    dedup_key: str | None = None,
    dedup_window: timedelta | float | None = None,
    using: str | None = None,
) -> SendResult:
    """Send one message as part of the transaction that is open, or at once if there is none.

    It is delivered to every consumer group after the commit; after a rollback, never.

    ``body`` is anything that DjangoJSONEncoder can write, or a str or bytes, and arrives as it
    was sent. ``key`` (at most 255 characters) and ``tag`` (64) are kept with it; ``headers`` maps
    strings to strings. ``delay`` (a timedelta, or seconds) or ``deliver_at`` (an aware datetime)
    keeps it back; a time in the past means at once. ``using`` names the database alias,
    ``EMS["DATABASE"]`` by default.

    Messages of one ``key`` go to one partition; ``partition`` chooses another one by its number.
    Of all sends to the topic with one ``dedup_key`` the first in ``dedup_window`` (a timedelta, or
    seconds; dedupWindowSeconds by default) is sent; for the others the result says ``duplicate``.
    A rollback of the first frees the key. The others wait for its transaction to end.

    Returns a :class:`SendResult`. Raises a :class:`StreamsError` before anything is written:
    UnknownTopic, TopicDenied, InvalidName, InvalidMessage, UnknownPartition, NotSerializable,
    MessageTooLarge, NaiveDatetime, WrongDatabase, NotMigrated. Outside a transaction it raises
    SendOutcomeUnknown if the connection breaks before the server has answered.
    """
    if dedup_key is not None or dedup_window is not None:
        message = Outgoing(
            topic, body, key, tag, headers, delay, deliver_at, partition, dedup_key, dedup_window
        )
        return send_many([message], using=using)[0]
    alias = _alias(using)
    due_at = None if delay is None and deliver_at is None else _due_at(delay, deliver_at)
    connection = connections[alias]
    in_doubt = False
    try:
        row = _prepare(alias, topic, body, key, tag, headers)
        looked_up = monotonic()
        if partition is not None:
            _all_writable([Outgoing(topic, partition=partition)], alias)
        info = _writable(topic, alias)
        partition_id, number = choose(info.partitions, key, partition)
        values, parameters = row.values(connection.vendor, partition_id, due_at)
        # A kept cursor remembers its last statement: not one with a large body.
        small = len(row.body) <= sql.HEX_BYTES
        cursor = _kept_cursor(connection) if small else connection.cursor()
        in_doubt = connection.autocommit
        cursor.execute(sql.INSERT_MESSAGES + values, parameters)
        message_id = cursor.lastrowid
        if monotonic() - looked_up > conf.SURE_SECONDS:
            _make_sure([info], [message_id], alias)
    except (DatabaseError, InterfaceError) as error:
        raise _translated(error, alias, in_doubt) from error
    _announce(alias)
    return SendResult(message_id, info.name, number)


def send_many(messages: Iterable[Outgoing], *, using: str | None = None) -> list[SendResult]:
    """Send all messages or none; the arguments and errors are those of :func:`send`.

    Returns the results in the order of ``messages``. Of several with one ``dedup_key`` the first
    is sent, if none was before.
    """
    alias = _alias(using)
    connection = connections[alias]
    checked: list[_Checked] = []
    in_doubt = False
    try:
        for message in messages:
            if not isinstance(message, Outgoing):
                raise InvalidMessage(_("send_many() takes Outgoing(…), not %r.") % type(message))
            due_at = _due_at(message.delay, message.deliver_at)
            window = window_of(message.dedup_key, message.dedup_window, alias)
            row = _prepare(
                alias, message.topic, message.body, message.key, message.tag, message.headers
            )
            checked.append(_Checked(message, due_at, window, row))
        if not checked:
            return []
        looked_up = monotonic()
        topics = _all_writable([one.message for one in checked], alias)
        placed = [one.placed(topics[one.message.topic], connection.vendor) for one in checked]
        slots = {one.slot for one in placed if one.slot}
        prepare(slots, alias)
        in_doubt = connection.get_autocommit()
        if not slots and len(chunks := list(_chunks(placed))) == 1:
            ids = _insert(alias, chunks[0])
            results = [one.result(id_) for one, id_ in zip(placed, ids, strict=True)]
            if monotonic() - looked_up > conf.SURE_SECONDS:
                _make_sure(topics.values(), ids, alias)
        else:
            with transaction.atomic(using=alias):
                results = _insert_new(alias, placed, hold(slots, alias))
                if monotonic() - looked_up > conf.SURE_SECONDS:
                    ours = [one.message_id for one in results if not one.duplicate]
                    _make_sure(topics.values(), ours, alias)
    except (DatabaseError, InterfaceError) as error:
        raise _translated(error, alias, in_doubt) from error
    _announce(alias)
    return results


async def asend(
    topic: str,
    body: Any = None,
    *,
    key: str | None = None,
    tag: str = "",
    headers: Mapping[str, str] | None = None,
    delay: timedelta | float | None = None,
    deliver_at: datetime | None = None,
    partition: int | None = None,
    dedup_key: str | None = None,
    dedup_window: timedelta | float | None = None,
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
        partition=partition,
        dedup_key=dedup_key,
        dedup_window=dedup_window,
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


def _all_writable(messages: Iterable[Outgoing], alias: str) -> dict[str, TopicInfo]:
    """The topics of these. Missing ones are created when nothing can be wrong any more."""
    found: dict[str, TopicInfo | None] = {}
    for message in messages:
        if message.topic not in found:
            found[message.topic] = None
            with suppress(UnknownTopic):
                found[message.topic] = _writable(message.topic, alias, create=False)
        info = found[message.topic]
        if message.partition is not None:  # nothing else can be wrong, and a turn be taken for it
            choose(info.partitions if info else NEW_TOPIC, None, message.partition)
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


class _Placed(NamedTuple):
    """A message that is ready to be inserted."""

    topic: str
    partition: int
    slot: DedupSlot | None
    window: timedelta | None
    size: int
    values: str
    parameters: tuple[Any, ...]

    def result(self, message_id: int) -> SendResult:
        return SendResult(message_id, self.topic, self.partition)


class _Checked(NamedTuple):
    """A message whose arguments are right."""

    message: Outgoing
    due_at: timedelta | datetime | None
    window: timedelta | None
    row: Row

    def placed(self, topic: TopicInfo, vendor: str) -> _Placed:
        message = self.message
        partition_id, number = choose(topic.partitions, message.key, message.partition)
        slot = None if message.dedup_key is None else slot_of(topic.id, message.dedup_key)
        values = self.row.values(vendor, partition_id, self.due_at)
        return _Placed(topic.name, number, slot, self.window, self.row.size, *values)


def _insert_new(
    alias: str, placed: list[_Placed], holders: dict[DedupSlot, Holder]
) -> list[SendResult]:
    """Insert what no other message has the dedup key of, under the locks of the slots."""
    taken = {
        slot: SendResult(holder.message_id, "", holder.partition, duplicate=True)
        for slot, holder in holders.items()
        if holder.message_id is not None
    }
    new: list[_Placed] = []
    claimed: set[DedupSlot | None] = set(taken)
    for one in placed:
        if one.slot not in claimed:
            new.append(one)
        if one.slot is not None:
            claimed.add(one.slot)
    ids = iter([id_ for chunk in _chunks(new) for id_ in _insert(alias, chunk)])
    results = []
    for one in placed:
        if one.slot is not None and one.slot in taken:
            results.append(replace(taken[one.slot], topic=one.topic))
            continue
        result = one.result(next(ids))
        if one.slot is not None and one.window is not None:
            take(holders[one.slot], result.message_id, one.partition, one.window, alias)
            taken[one.slot] = replace(result, duplicate=True)
        results.append(result)
    return results


def _chunks(rows: list[_Placed]) -> Iterator[list[_Placed]]:
    chunk: list[_Placed] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == CHUNK_ROWS or size + row.size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row.size
    if chunk:
        yield chunk


def _insert(alias: str, chunk: list[_Placed]) -> list[int]:
    """One multi-row INSERT; the new ids in the order of the rows."""
    connection = connections[alias]
    statement = sql.INSERT_MESSAGES + ", ".join(row.values for row in chunk)
    parameters = [value for row in chunk for value in row.parameters]
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
    (docs/about/benchmarks/core.md). Its checks are made here each time; whoever logs queries gets a
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


def _make_sure(topics: Iterable[TopicInfo], ids: Sequence[int], alias: str) -> None:
    """The send has taken long since it looked its topics up: frozen, or it waited for a lock.

    If one of them is deleted or denied by now, take the messages back and raise; a topic is not
    deleted before all who may still send to it have either been seen or come here
    (streams/removal.py). What is sequenced already is in a log, and is left there.
    """
    for info in topics:
        now = look_again(info, alias)
        if now and now.id == info.id and now.access in WRITABLE:
            continue
        if not _take_back(ids, alias):
            continue
        forget()
        _writable(info.name, alias, create=False)
        raise UnknownTopic(
            _("The topic %r was changed while the message was sent: send it again.") % info.name
        )


def _take_back(ids: Sequence[int], alias: str) -> bool:
    """Delete the new messages; False, and none of them, if one has left the inbox."""
    statement = sql.delete_by_id(connections[alias].vendor, "ems_msg", ids, "`offset` IS NULL")
    with transaction.atomic(using=alias):
        if sql.execute(alias, statement) == len(ids):
            return True
        transaction.set_rollback(True, using=alias)
    return False


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
