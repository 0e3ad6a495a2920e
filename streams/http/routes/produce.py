"""Sends messages, one or many, and takes back those that are not visible yet."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any, Literal

from ninja import Header, Router, Status
from pydantic import Field

from streams.api import Outgoing, SendResult
from streams.conf import MAX_BATCH, database
from streams.http.access import ApiRequest, needs
from streams.http.databases import Database, alias_of_id
from streams.http.fields import Answer, Id, Instant, Request, body_in
from streams.http.hot import hot
from streams.http.problems import Problem
from streams.http.threads import on_pool, short_waits
from streams.log.foreign import own_rows
from streams.models import Message
from streams.nouns.noun import BodyTypeName
from streams.produce.cancel import cancel
from streams.produce.send import one_of_all, send, send_many
from streams.sharding import alias_of
from streams.tracing import carried

router = Router(tags=["Produce"])

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="The same as dedup_key, for who cannot set that."),
]


class Content(Request):
    """A message without its topic. Its fields are the arguments of ``send()``."""

    body: Any = Field(None, description="Any JSON; a string alone is text.")
    body_type: BodyTypeName | None = Field(
        None, description="Without it a string is text. bytes: the string is Base64."
    )
    key: str | None = None
    tag: str = ""
    headers: dict[str, str] | None = None
    delay: float | None = Field(None, description="In seconds.")
    deliver_at: Instant | None = None
    partition: int | None = None
    dedup_key: str | None = None
    dedup_window: float | None = Field(None, description="In seconds.")

    def outgoing(self, topic: str, trace: Mapping[str, str]) -> Outgoing:
        """Return what to send; raises InvalidMessage."""
        given = self.headers
        if trace and "traceparent" not in (given or {}):
            given = {**trace, **(given or {})}
        body = body_in(self.body, self.body_type)
        return Outgoing(
            *(topic, body, self.key, self.tag, given, self.delay, self.deliver_at),
            *(self.partition, self.dedup_key, self.dedup_window),
        )


class OfTopic(Content):
    """A message of a batch."""

    topic: str


class Batch(Request):
    messages: Annotated[list[OfTopic], Field(min_length=1, max_length=MAX_BATCH)]


class Sent(Answer):
    """What was sent; of a duplicate, what was sent first."""

    message_id: int
    topic: str
    partition: int
    duplicate: bool
    database: str

    @classmethod
    def of(cls, result: SendResult, using: str) -> Sent:
        return cls(
            database=using,
            message_id=result.message_id,
            topic=result.topic,
            partition=result.partition,
            duplicate=result.duplicate,
        )


class AllSent(Answer):
    results: list[Sent]


class Cancelled(Answer):
    outcome: Literal["cancelled"] = "cancelled"


@router.post("/topics/{topic}/messages", response={201: Sent, 200: Sent})
@hot
@needs("send", "{topic}")
@on_pool
def send_message(
    request: ApiRequest, topic: str, content: Content, idempotency_key: IdempotencyKey = None
) -> Status[Sent]:
    """Send a message. It is committed when the answer comes; 200: it is a duplicate."""
    using = database()
    one = content.outgoing(topic, carried(request.headers))
    dedup_key = _agreed(content.dedup_key, idempotency_key)
    # Another send with this key may be in a transaction that stays open.
    with nullcontext() if dedup_key is None else short_waits():
        result = send(
            one.topic,
            one.body,
            key=one.key,
            tag=one.tag,
            headers=one.headers,
            delay=one.delay,
            deliver_at=one.deliver_at,
            partition=one.partition,
            dedup_key=dedup_key,
            dedup_window=one.dedup_window,
            using=using,
        )
    return Status(200 if result.duplicate else 201, Sent.of(result, using))


@router.post("/messages", response={201: AllSent})
@hot
@needs("send")
@on_pool
def send_batch(
    request: ApiRequest, batch: Batch, idempotency_key: IdempotencyKey = None
) -> Status[AllSent]:
    """Send all messages or none, in one transaction. 409: they are for several databases."""
    if idempotency_key is not None:
        raise Problem(422, "invalid", "Give each message of a batch its dedup_key.")
    for topic in {one.topic for one in batch.messages}:
        request.auth.needs("send", topic)
    trace = carried(request.headers)
    outgoing = [one.outgoing(one.topic, trace) for one in batch.messages]
    using = alias_of(one_of_all(outgoing))
    with short_waits(using):
        results = send_many(outgoing, using=using)
    return Status(201, AllSent(results=[Sent.of(one, using) for one in results]))


@router.delete("/messages/{message_id}", response=Cancelled)
@needs("send")
@on_pool
def cancel_message(request: ApiRequest, message_id: Id, on: Database = None) -> Cancelled:
    """Take back a delayed message. 409 ``visible``: too late; 404: there is none of this id."""
    using = alias_of_id(on)
    topic = _topic_of(message_id, using)
    # An id says nothing of its topic: who may not send to it is told that there is none.
    if topic is not None and request.auth.may("send", topic):
        outcome = cancel(message_id, topic=topic, using=using)
        if outcome == "cancelled":
            return Cancelled()
        if outcome == "visible":
            raise Problem(
                409, "visible", "It is too late: the message is visible, or soon will be."
            )
    raise Problem(404, "unknown", "There is no such message: it was cancelled before, or purged.")


def _topic_of(message_id: int, using: str) -> str | None:
    rows = own_rows(Message.objects.using(using), using).filter(pk=message_id)
    name: str | None = rows.values_list("partition__topic__name", flat=True).first()
    return name


def _agreed(field: str | None, header: str | None) -> str | None:
    """Return the dedup key of a request; raises Problem if it has two."""
    if field is not None and header is not None and field != header:
        raise Problem(422, "invalid", "Idempotency-Key and dedup_key are not the same.")
    return header if field is None else field
