"""Finds what a path names; what is not there is a problem with the status 404."""

from __future__ import annotations

from streams.errors import UnknownGroup, UnknownPartition
from streams.http.access import Caller
from streams.http.problems import Problem
from streams.models import ConsumerGroup, Message, Partition
from streams.models.namespaces import own
from streams.operate.topics import topic_of


def group_named(topic: str, name: str, using: str) -> ConsumerGroup:
    rows = ConsumerGroup.objects.using(using).select_related("topic")
    row = rows.filter(topic=topic_of(topic, using).pk, name=name).first()
    if row is None:
        raise UnknownGroup(f"There is no group {name!r} on {topic!r}.")
    return row


def partition_numbered(topic: str, number: int, using: str) -> Partition:
    rows = Partition.objects.using(using).select_related("topic")
    row = rows.filter(topic=topic_of(topic, using).pk, number=number).first()
    if row is None:
        raise UnknownPartition(f"{topic} has no partition {number}.")
    return row


def message_of(caller: Caller, message_id: int, using: str) -> Message:
    """Return a message without its body.

    One that the caller may not read is as one that is not there: an id says nothing of its topic.
    """
    rows = Message.objects.using(using).filter(own("partition__topic__name"), pk=message_id)
    row = rows.select_related("partition__topic").defer("body").first()
    if row is None or not caller.may("read", row.partition.topic.name):
        raise Problem(404, "unknown", f"There is no message {message_id}.")
    return row


def message_at(topic: str, number: int, offset: int, using: str) -> Message:
    partition = partition_numbered(topic, number, using)
    rows = Message.objects.using(using).filter(partition=partition.pk, offset=offset)
    row = rows.defer("body").first()
    if row is None:
        raise Problem(404, "unknown", f"There is no message {partition}@{offset}.")
    Message._meta.get_field("partition").set_cached_value(row, partition)
    return row
