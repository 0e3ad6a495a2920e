"""Shows messages and what became of them."""

from __future__ import annotations

from django.http import HttpResponse
from ninja import Router

from streams.conf import database
from streams.errors import UnknownPartition
from streams.http.access import ApiRequest, needs
from streams.http.cursors import cursor, position
from streams.http.databases import Database, alias_of_id
from streams.http.fields import Id, Instant, Limit, Page, body_out, with_body
from streams.http.found import message_at, message_of
from streams.http.problems import Problem
from streams.http.threads import on_pool
from streams.log.search import Criteria, parse_position, position_text, search
from streams.models import Message, Partition
from streams.nouns.message import GroupWay, MessageHead, MessageShown, Way
from streams.observe.trace import trace
from streams.operate.topics import topic_of

router = Router(tags=["Messages"])


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
    items = [MessageHead.of(one) for one in found.messages]
    return Page(items=items, next=cursor(position_text(found.then)) if found.then else None)


def _shown(request: ApiRequest, row: Message) -> HttpResponse:
    may = request.auth.may("body", row.partition.topic.name)
    try:
        raw = row.readable_body() if may else None
    except Message.DoesNotExist as error:  # purged since it was found
        raise Problem(404, "unknown", f"There is no message {row.pk}.") from error
    shown = MessageShown.of(row, has_body=may, damaged=may and raw is None, body=None)
    return with_body(shown, "null" if raw is None else body_out(raw, row.body_type))


def _way(row: Message) -> Way:
    groups = [GroupWay.of(one) for one in trace(row)]
    return Way(message=MessageHead.of(row), groups=groups)
