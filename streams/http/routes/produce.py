"""Sends messages."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from streams.api import Outgoing, SendResult
from streams.conf import database
from streams.http.access import ApiRequest, needs
from streams.http.fields import Answer, BodyTypeName, Instant, Request, body_in
from streams.http.threads import on_pool
from streams.produce.send import send_many

router = Router(tags=["Produce"])


class NewMessage(Request):
    """Is a message to be sent; see the arguments of ``send()``."""

    body: Any = None
    body_type: BodyTypeName | None = None
    key: str | None = None
    tag: str = ""
    headers: dict[str, str] | None = None
    delay: float | None = None
    deliver_at: Instant | None = None
    partition: int | None = None
    dedup_key: str | None = None
    dedup_window: float | None = None

    def outgoing(self, topic: str) -> Outgoing:
        body = body_in(self.body, self.body_type)
        return Outgoing(
            *(topic, body, self.key, self.tag, self.headers, self.delay, self.deliver_at),
            *(self.partition, self.dedup_key, self.dedup_window),
        )


class Sent(Answer):
    message_id: int
    topic: str
    partition: int
    duplicate: bool

    @classmethod
    def of(cls, result: SendResult) -> Sent:
        return cls(
            message_id=result.message_id,
            topic=result.topic,
            partition=result.partition,
            duplicate=result.duplicate,
        )


@router.post("/topics/{topic}/messages", response={201: Sent, 200: Sent})
@needs("send", "{topic}")
@on_pool
def send_message(request: ApiRequest, topic: str, message: NewMessage) -> Status[Sent]:
    """Send a message. 200: it is a duplicate, and the answer names the first one."""
    (result,) = send_many([message.outgoing(topic)], using=database())
    return Status(200 if result.duplicate else 201, Sent.of(result))
