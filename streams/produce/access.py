"""Checks which topics a send may write to, before its INSERT and again after a long one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from django.db import DatabaseError, InterfaceError, connections, transaction

from streams.api import Outgoing
from streams.database.retrying import retrying
from streams.database.sql.dialect import delete_by_id, execute
from streams.database.transactions import in_transaction
from streams.errors import SendOutcomeUnknown, TopicDenied, UnknownTopic
from streams.log.topics import TopicInfo, forget, look_again, resolve
from streams.produce.partitioning import wanted

WRITABLE = frozenset({"read-write", "write-only"})

# The (id, number) of the partitions of a topic that a send will create: it has one.
NEW_TOPIC = ((0, 0),)


def writable(topic: str, alias: str, *, create: bool | None = None) -> TopicInfo:
    info = resolve(topic, alias, create=create)
    if info.access not in WRITABLE:
        raise TopicDenied(f"The topic {topic!r} is {info.access}: it takes no messages at present.")
    return info


def all_writable(messages: Iterable[Outgoing], alias: str) -> dict[str, TopicInfo]:
    """Return the topics of ``messages``; create missing ones after all messages are checked."""
    found: dict[str, TopicInfo | None] = {}
    for message in messages:
        if message.topic not in found:
            found[message.topic] = None
            with suppress(UnknownTopic):
                found[message.topic] = writable(message.topic, alias, create=False)
        info = found[message.topic]
        if message.partition is not None:  # check the number, before a topic is created for it
            wanted(info.partitions if info else NEW_TOPIC, message.partition)
    return {topic: info or writable(topic, alias) for topic, info in found.items()}


def make_sure(topics: Iterable[TopicInfo], ids: Sequence[int], alias: str) -> None:
    """Check ``topics`` again after a send that took long: it was frozen, or waited for a lock.

    If one of them is deleted or denied by now, delete the messages ``ids`` and raise
    UnknownTopic or TopicDenied. The deletion of a topic relies on this: a send that it cannot
    see takes longer than SURE_SECONDS, and comes here (streams/operate/topic_deletion.py).
    Messages that are sequenced already stay in the log, which consumers may have left: raises
    SendOutcomeUnknown, as it does if the database is away and the messages are committed.
    """
    committed = not in_transaction(alias)
    try:
        _make_sure(topics, ids, alias)
    except (DatabaseError, InterfaceError) as error:
        if committed:
            raise SendOutcomeUnknown from error
        raise


def _make_sure(topics: Iterable[TopicInfo], ids: Sequence[int], alias: str) -> None:
    for info in topics:
        now = retrying(look_again, alias, info, alias)
        if now and now.id == info.id and now.access in WRITABLE:
            continue
        withdrawn = retrying(_withdraw, alias, ids, alias)
        forget()
        if not withdrawn:
            raise SendOutcomeUnknown(
                f"The topic {info.name!r} was closed while the message was sent: it may or may not"
                " be read."
            )
        writable(info.name, alias, create=False)
        raise UnknownTopic(
            f"The topic {info.name!r} was changed while the message was sent: send it again."
        )


def _withdraw(ids: Sequence[int], alias: str) -> bool:
    """Delete the new messages; return False and delete none if one has left the inbox."""
    statement = delete_by_id(connections[alias].vendor, "ems_msg", ids, "`offset` IS NULL")
    with transaction.atomic(using=alias):
        if execute(alias, statement) == len(ids):
            return True
        transaction.set_rollback(True, using=alias)
    return False
