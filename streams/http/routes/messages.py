"""Shows messages and what became of them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from ninja import Router

from streams.conf import database
from streams.errors import UnknownPartition
from streams.http.access import ApiRequest, needs
from streams.http.cursors import cursor, position
from streams.http.databases import Database, alias_of_id
from streams.http.fields import Answer, BodyTypeName, Id, Instant, Limit, Page, body_out, with_body
from streams.http.found import message_at, message_of
from streams.http.problems import Problem
from streams.http.threads import on_pool
from streams.log.search import Criteria, parse_position, position_text, search
from streams.models import IMMEDIATE, Delivery, Message, Partition
from streams.observe.trace import GroupTrace, TracedAttempt, trace
from streams.operate.topics import topic_of

router = Router(tags=["Messages"])


class MessageHead(Answer):
    """A message without its body; ``offset`` is null until it is sequenced."""

    message_id: int
    database: str
    topic: str
    partition: int
    offset: int | None
    key: str | None
    tag: str
    size: int
    body_type: BodyTypeName
    producer: str
    deliver_at: Instant | None
    created_at: Instant
    sequenced_at: Instant | None
    headers: dict[str, Any]


class MessageShown(MessageHead):
    """A message; ``has_body`` is false if the token has no right to read its body."""

    has_body: bool
    body: Any


class AttemptShown(Answer):
    """One delivery of the message, which may have covered others, too."""

    delivery: int
    kind: str
    attempt: int
    outcome: str
    error: str
    client: str
    claimed_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    waited_seconds: float | None
    took_seconds: float | None


class GroupWay(Answer):
    """What a group has done with the message, and what it does next (``state``)."""

    group: str
    state: str
    attempts: list[AttemptShown]
    retry_at: Instant | None
    dead_letters: list[int]


class Way(Answer):
    message: MessageHead
    groups: list[GroupWay]


@router.get("/messages/{message_id}", response=MessageShown)
@needs("read")
@on_pool
def show_message(request: ApiRequest, message_id: Id, on: Database = None) -> HttpResponse:
    """Show a message. Its body is there if the token has the right `body` on its topic."""
    row = message_of(request.auth, message_id, alias_of_id(on))
    return _shown(request, row)


@router.get("/messages/{message_id}/trace", response=Way)
@needs("read")
@on_pool
def trace_message(request: ApiRequest, message_id: Id, on: Database = None) -> Way:
    """Show what each group has done with a message, and what it will do."""
    return _way(message_of(request.auth, message_id, alias_of_id(on)))


@router.get("/topics/{topic}/partitions/{int:partition}/messages/{int:offset}/trace", response=Way)
@needs("read", "{topic}")
@on_pool
def trace_place(request: ApiRequest, topic: str, partition: Id, offset: Id) -> Way:
    return _way(message_at(topic, partition, offset, database()))


@router.get(
    "/topics/{topic}/partitions/{int:partition}/messages/{int:offset}", response=MessageShown
)
@needs("read", "{topic}")
@on_pool
def show_place(request: ApiRequest, topic: str, partition: Id, offset: Id) -> HttpResponse:
    """Show the message at an offset."""
    return _shown(request, message_at(topic, partition, offset, database()))


@router.get("/topics/{topic}/messages", response=Page[MessageHead])
@needs("read", "{topic}")
@on_pool
def search_messages(
    request: ApiRequest,
    topic: str,
    partition: Id | None = None,
    key: str | None = None,
    tag: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    after: str | None = None,
    limit: Limit = 100,
) -> Page[MessageHead]:
    """List messages without their bodies, the newest first; of a key, of a tag, or of a time.

    One request reads a bounded part of the log: a page may have fewer than `limit`, or none. The
    last one has no `next`.
    """
    using = database()
    row = topic_of(topic, using)
    rows = Partition.objects.using(using).filter(topic=row.pk).select_related("topic")
    if partition is not None:
        rows = rows.filter(number=partition)
    partitions = list(rows.order_by("number"))
    if not partitions:
        raise UnknownPartition(f"{topic} has no partition {partition}.")
    criteria = Criteria(since=since, until=until, tag=tag, key=key)
    told = position(after, str)
    start = None if told is None else parse_position(told[0])
    found = search(partitions, criteria, limit, using, start)
    of = {one.pk: one for one in partitions}
    items = [MessageHead(**_values(one, of[one.partition_id])) for one in found.messages]
    return Page(items=items, next=cursor(position_text(found.then)) if found.then else None)


def _values(row: Message, partition: Partition) -> dict[str, Any]:
    return {
        "message_id": row.pk,
        "database": row._state.db,
        "topic": partition.topic.name,
        "partition": partition.number,
        "offset": row.offset,
        "key": row.key,
        "tag": row.tag,
        "size": row.size,
        "body_type": row.body_type,
        "producer": row.producer,
        "deliver_at": None if row.due_at == IMMEDIATE else row.due_at,
        "created_at": row.created_at,
        "sequenced_at": row.sequenced_at,
        "headers": row.headers or {},
    }


def _shown(request: ApiRequest, row: Message) -> HttpResponse:
    may = request.auth.may("body", row.partition.topic.name)
    shown = MessageShown(**_values(row, row.partition), has_body=may, body=None)
    if not may:
        return with_body(shown, "null")
    bodies = Message.objects.using(row._state.db).filter(pk=row.pk)
    raw = bodies.values_list("body", flat=True).first()
    if raw is None:  # purged since it was found
        raise Problem(404, "unknown", f"There is no message {row.pk}.")
    return with_body(shown, body_out(bytes(raw), row.body_type))


def _way(row: Message) -> Way:
    head = MessageHead(**_values(row, row.partition))
    return Way(message=head, groups=[_of_group(one) for one in trace(row)])


def _of_group(one: GroupTrace) -> GroupWay:
    return GroupWay(
        group=one.group.name,
        state=one.state,
        attempts=[_attempt(attempt) for attempt in one.attempts],
        retry_at=one.retry.due_at if one.retry and one.retry.delivery_id is None else None,
        dead_letters=[letter.pk for letter in one.dead],
    )


def _attempt(attempt: TracedAttempt) -> AttemptShown:
    delivery: Delivery = attempt.delivery
    return AttemptShown(
        delivery=delivery.pk,
        kind=delivery.kind,
        attempt=delivery.attempt,
        outcome=attempt.outcome,
        error=attempt.error,
        client=delivery.client_id,
        claimed_at=delivery.claimed_at,
        started_at=delivery.started_at,
        finished_at=delivery.finished_at,
        waited_seconds=None if attempt.waited is None else attempt.waited.total_seconds(),
        took_seconds=None if attempt.took is None else attempt.took.total_seconds(),
    )
