"""Looks at topics and changes them."""

from __future__ import annotations

from functools import partial
from typing import Literal, cast

from django.db.models import Count, F, Sum
from ninja import Router, Status

from streams.conf import database
from streams.http.access import ApiRequest, Caller, needs
from streams.http.databases import page_of_all
from streams.http.fields import Answer, Instant, Limit, PageOfAll, Request
from streams.http.journal import note, note_changes, who
from streams.http.threads import on_pool
from streams.models import ConsumerGroup, Partition, Topic
from streams.observe.inbox import due_counts, due_since
from streams.operate import topics
from streams.operate.changes import change
from streams.operate.topics import topic_of
from streams.sharding import alias_of

router = Router(tags=["Topics"])

AccessName = Literal["read-write", "write-only", "read-only", "denied"]
# Where counts end: 10,000 means at least so many.
COUNT_AT_MOST = 10_000


class TopicInList(Answer):
    """A topic in a list; ``messages`` are those that have an offset and are kept."""

    topic: str
    database: str
    access: AccessName
    partitions: int
    messages: int
    created_at: Instant


class PartitionState(Answer):
    """A partition: it has the offsets ``first`` … ``next`` - 1.

    ``inbox`` counts the messages that are due and have no offset; 10,000 means at least so many.
    """

    partition: int
    first: int
    next: int
    sequenced_at: Instant | None
    inbox: int
    inbox_since: Instant | None


class TopicFields(Answer):
    access: AccessName
    retention_seconds: int | None
    retention_count: int | None
    retention_consumed: bool
    archive: bool
    index_keys: bool


class TopicState(TopicFields):
    topic: str
    database: str
    created_at: Instant
    partitions: list[PartitionState]
    groups: list[str]


class NewTopic(Request):
    name: str
    partitions: int = 1


class TopicChanges(Request):
    """The fields to change; null removes a limit."""

    access: AccessName | None = None
    retention_seconds: int | None = None
    retention_count: int | None = None
    retention_consumed: bool | None = None
    archive: bool | None = None
    index_keys: bool | None = None


@router.get("/topics", response=PageOfAll[TopicInList])
@needs("read")
@on_pool
def list_topics(
    request: ApiRequest, after: str | None = None, limit: Limit = 100
) -> PageOfAll[TopicInList]:
    """List the topics that the token may read: by name, those of one database after the other."""
    return page_of_all(after, str, limit, partial(_listed, request.auth))


def _listed(
    caller: Caller, using: str, behind: str | None, limit: int
) -> tuple[list[TopicInList], str | None]:
    rows = Topic.objects.using(using).order_by("name")
    if behind is not None:
        rows = rows.filter(name__gt=behind)
    # Rights are patterns: what a topic is called decides, not a condition of the statement.
    names = (name for name in rows.values_list("name", flat=True).iterator(chunk_size=1000))
    chosen: list[str] = []
    for name in names:
        if caller.may("read", name):
            chosen.append(name)
        if len(chosen) > limit:
            break
    shown = rows.filter(name__in=chosen[:limit])
    counted = shown.annotate(
        n=Count("partitions"),
        messages=Sum(F("partitions__next_offset") - F("partitions__first_offset")),
    )
    items = [
        TopicInList(
            topic=row.name,
            database=using,
            access=cast("AccessName", row.access),
            partitions=row.n,
            messages=row.messages or 0,
            created_at=row.created_at,
        )
        for row in counted
    ]
    return items, chosen[limit - 1] if len(chosen) > limit else None


@router.get("/topics/{topic}", response=TopicState)
@needs("read", "{topic}")
@on_pool
def show_topic(request: ApiRequest, topic: str) -> TopicState:
    return _state(topic_of(topic, database()))


@router.post("/topics", response={201: TopicState})
@needs("manage")
@on_pool
def create_topic(request: ApiRequest, topic: NewTopic) -> Status[TopicState]:
    """Create a topic. 409: there is one already."""
    request.auth.needs("manage", topic.name)
    using = alias_of(topic.name)
    row = topics.create(topic.name, topic.partitions, using)
    note(request.auth, row, f"created with {topic.partitions} partitions")
    return Status(201, _state(topic_of(topic.name, using)))


@router.patch("/topics/{topic}", response=TopicState)
@needs("manage", "{topic}")
@on_pool
def change_topic(request: ApiRequest, topic: str, changes: TopicChanges) -> TopicState:
    """Change the fields that are given. Other processes use them within five seconds."""
    row = topic_of(topic, database())
    given = changes.model_dump(exclude_unset=True)
    note_changes(request.auth, row, change(row, given, database(), who(request.auth)))
    return _state(row)


def _state(row: Topic) -> TopicState:
    using = row._state.db or database()
    found = list(Partition.objects.using(using).filter(topic=row.pk).order_by("number"))
    since = due_since((one.pk for one in found), using)
    counts = due_counts(since, COUNT_AT_MOST, using)
    groups = ConsumerGroup.objects.using(using).filter(topic=row.pk).order_by("name")
    return TopicState(
        **{name: getattr(row, name) for name in TopicFields.model_fields},
        topic=row.name,
        database=using,
        created_at=row.created_at,
        partitions=[
            PartitionState(
                partition=one.number,
                first=one.first_offset,
                next=one.next_offset,
                sequenced_at=one.last_sequenced_at,
                inbox=counts.get(one.pk, 0),
                inbox_since=since.get(one.pk),
            )
            for one in found
        ],
        groups=[*groups.values_list("name", flat=True)],
    )
