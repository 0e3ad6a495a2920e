"""Checks a message to be sent, gives it its partition and due time, and writes it as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from streams import runtime_settings
from streams.api import Outgoing, SendResult
from streams.body import encode
from streams.conf import longest_name
from streams.database.sql import send as sql
from streams.database.sql.dialect import LATER, later
from streams.errors import MAX_DELAY, InvalidMessage, NaiveDatetime
from streams.log.topics import TopicInfo
from streams.produce.dedup import DedupSlot, slot_of
from streams.produce.identity import producer
from streams.produce.partitioning import choose
from streams.rules.message import check_size, headers_as_json
from streams.rules.names import MAX_NAME, MAX_TAG, text_of_key, validated_key, validated_name
from streams.rules.stored_body import to_stored


class Row(NamedTuple):
    """A message that has been checked, except for its topic; its body as it was given."""

    key: str | None
    tag: str
    headers: str | None
    body: bytes
    body_type: str

    @property
    def size(self) -> int:
        return len(self.body) + len(self.headers or "")

    def values(
        self,
        vendor: str,
        partition_id: int,
        due_at: timedelta | datetime | None,
        sent_by: str | None = None,
    ) -> tuple[str, tuple[Any, ...]]:
        """Return one row of INSERT_MESSAGES, and its parameters.

        ``sent_by`` is the producer, if it is not this thread.
        """
        key, tag, headers, raw, body_type = self
        body, stored_type = to_stored(raw, body_type)
        due_sql, parameters = _due_sql(vendor, due_at)
        named = key is not None or tag != "" or headers is not None
        if named:
            parameters += key, tag, headers
        if len(body) > sql.HEX_BYTES:
            parameters += (body,)
        sender, its_parameter = producer() if sent_by is None else ("%s", (sent_by,))
        values = sql.message_values(
            vendor, partition_id, due_sql, body, stored_type, len(raw), sender, named=named
        )
        return values, parameters + its_parameter


def checked_row(
    alias: str,
    topic: str,
    body: Any,
    key: Any,
    tag: str,
    headers: Mapping[str, str] | None,
) -> Row:
    """Check everything but the topic's existence and access; return the message as a Row.

    Raises InvalidName, InvalidMessage, NotSerializable, MessageTooLarge.
    """
    validated_name(topic, "topic", longest_name(MAX_NAME))
    if key is not None:
        key = validated_key(key)
    if tag != "":
        validated_name(tag, "tag", MAX_TAG)
    raw, body_type = encode(body)
    headers_json = None if headers is None else headers_as_json(headers)
    check_size(raw, headers_json, runtime_settings.system("msgMaxSizeInBytes", alias))
    return Row(key, tag, headers_json, raw, body_type)


def checked_due(delay: Any, deliver_at: Any) -> timedelta | datetime | None:
    """Return the checked ``delay`` or ``deliver_at``; None means at once.

    Raises InvalidMessage, NaiveDatetime.
    """
    if deliver_at is not None:
        if delay is not None:
            raise InvalidMessage("Give delay or deliver_at, not both.")
        if not isinstance(deliver_at, datetime):
            raise InvalidMessage(f"deliver_at must be a datetime, not {deliver_at!r}.")
        if deliver_at.utcoffset() is None:
            raise NaiveDatetime
        try:
            return deliver_at.astimezone(UTC)
        except OverflowError:
            raise InvalidMessage(f"deliver_at is out of range: {deliver_at}.") from None
    if delay is None:
        return None
    if isinstance(delay, timedelta):
        duration = delay
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        try:
            duration = timedelta(seconds=delay)
        except (OverflowError, ValueError):  # too large, or not a number
            raise InvalidMessage("The delay is too long, or no number.") from None
    else:
        raise InvalidMessage(f"delay must be a timedelta or seconds, not {delay!r}.")
    if duration < timedelta(0):
        raise InvalidMessage("A delay cannot be negative.")
    if duration > MAX_DELAY:
        raise InvalidMessage(f"The delay {duration} is too long.")
    return duration or None


def _due_sql(vendor: str, due_at: timedelta | datetime | None) -> tuple[str, tuple[Any, ...]]:
    if due_at is None:
        return sql.DUE_IMMEDIATELY, ()
    if isinstance(due_at, timedelta):
        return LATER[vendor], (later(vendor, due_at),)
    text = str(due_at.replace(tzinfo=None))
    return sql.DUE_AT[vendor], (text, text)


class Placed(NamedTuple):
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


class Checked(NamedTuple):
    """A message whose arguments have been checked."""

    message: Outgoing
    due_at: timedelta | datetime | None
    window: timedelta | None
    row: Row

    def placed(self, topic: TopicInfo, vendor: str) -> Placed:
        message = self.message
        partition_id, number = choose(
            topic.name, topic.partitions, self.row.key, message.headers, message.partition
        )
        key = text_of_key(message.dedup_key)
        slot = None if key is None else slot_of(topic.id, key)
        values = self.row.values(vendor, partition_id, self.due_at)
        return Placed(topic.name, number, slot, self.window, self.row.size, *values)
