"""Looks at topics and changes them."""

from __future__ import annotations

from functools import partial
from typing import Any

from ninja import Router, Status

from streams.conf import database
from streams.http.access import ApiRequest, Caller, needs
from streams.http.databases import page_of_all
from streams.http.fields import Answer, Limit, PageOfAll, Request
from streams.http.journal import note, note_changes, who
from streams.http.problems import Problem
from streams.http.threads import on_pool
from streams.models import ConsumerGroup, Partition, Topic
from streams.nouns.topic import AccessName, PartitionState, TopicInList, TopicState, with_counts
from streams.observe.contract.json_schema import json_schema
from streams.observe.contract.types import names_of, types_of
from streams.observe.inbox import due_counts, due_since
from streams.operate import topics
from streams.operate.changes import change
from streams.operate.topics import topic_of
from streams.sharding import alias_of

router = Router(tags=["Topics"])

# Where counts end: 10,000 means at least so many.
COUNT_AT_MOST = 10_000


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


class TopicSchema(Answer):
    """The JSON Schema of bodies that each consumer of the topic can read.

    ``types`` has the name of the type by group; groups that take any body are not in it.
    """

    topic: str
    types: dict[str, str]
    json_schema: dict[str, Any]


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
    shown = with_counts(rows.filter(name__in=chosen[:limit]))
    items = [TopicInList.of(row) for row in shown]
    return items, chosen[limit - 1] if len(chosen) > limit else None


@router.get("/topics/{topic}", response=TopicState)
@needs("read", "{topic}")
@on_pool
def show_topic(request: ApiRequest, topic: str) -> TopicState:
    return _state(topic_of(topic, database()))


@router.get("/topics/{topic}/schema", response=TopicSchema)
@needs("read", "{topic}")
@on_pool
def show_schema(request: ApiRequest, topic: str) -> TopicSchema:
    """Show the JSON Schema of the bodies. 404: no consumer of the project says a type of them."""
    types = types_of(topic_of(topic, database()).name)
    if not types:
        raise Problem(404, "unknown", f"No consumer of {topic} says a type of its bodies.")
    names = names_of(types.values())
    groups = {group: names[one.kind] for group, one in types.items()}
    return TopicSchema(topic=topic, types=groups, json_schema=json_schema(types))


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
    return TopicState.of(
        row,
        partitions=[
            PartitionState.of(one, inbox=counts.get(one.pk, 0), inbox_since=since.get(one.pk))
            for one in found
        ],
        groups=[*groups.values_list("name", flat=True)],
    )
