"""Reads the log of a partition."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import Field

from streams.conf import MAX_HOLD
from streams.http import threads
from streams.http.access import ApiRequest, identified_again, needs
from streams.http.fields import Answer, Id, Limit, joined
from streams.http.problems import Problem
from streams.http.pulling import holding, poller
from streams.http.pulling.log import Purged, Stretch, read_log
from streams.http.pulling.waiting import waiting
from streams.http.routes.pull import Message, message_out
from streams.log.bodies import StoredMessage
from streams.sharding import alias_of

router = Router(tags=["Log"])

From = Annotated[Id, Query(alias="from", description="The offset of the first message.")]
Hold = Annotated[
    float, Query(ge=0, le=MAX_HOLD, description="Seconds to wait if there is nothing yet.")
]


class LogMessage(Message):
    damaged: bool = Field(description="What is stored of the body cannot be read: it is null.")


class Log(Answer):
    """A stretch of the log: read on from ``next``."""

    messages: list[LogMessage]
    next: int
    first: int = Field(description="The first offset that is kept.")
    end: int = Field(description="The offset that the next message will have.")
    retry_after: int | None = Field(None, description="Not held: too many are. Seconds.")


@router.get("/topics/{topic}/partitions/{number}/messages", response=Log)
@needs("read", "{topic}")
async def read(
    request: ApiRequest, topic: str, number: int, start: From, limit: Limit = 100, hold: Hold = 0
) -> HttpResponse:
    """Read messages by their offsets; 410 ``purged``: the first ones are gone.

    Without the right ``body`` the bodies are null. There is no lease: nobody knows what you read.
    """
    hold = holding.longest(request, hold)
    seen = await threads.on_a_thread(_look, topic, number, start, limit)
    admitted = True

    async def look() -> Stretch | None:
        nonlocal seen
        request.auth = await identified_again(request, "read", topic)
        seen = await threads.on_a_thread(_look, topic, number, start, limit)
        return seen if seen.messages else None

    if hold and seen.next == start == seen.end:
        with (
            holding.held(request, request.auth.id, request.auth.max_holds) as admitted,
            waiting(alias_of(topic)).for_offset(seen.partition_id, start) as waiter,
        ):
            await holding.until_found(look, waiter, hold if admitted else 0)
    return _answer(seen, request.auth.may("body", topic), refused=not admitted)


def _look(topic: str, number: int, start: int, limit: int) -> Stretch:
    using = alias_of(topic)
    poller.ensure(using)
    try:
        found = read_log(topic, number, start, limit, using)
    except Purged as purged:
        raise Problem(410, "purged", str(purged), first=purged.first) from purged
    waiting(using).concern(topic)
    return found


def _answer(read: Stretch, with_bodies: bool, *, refused: bool) -> HttpResponse:
    messages = ", ".join(_message(row, with_bodies) for row in read.messages)
    values: dict[str, Any] = {
        "next": read.next,
        "first": read.first,
        "end": read.end,
        "retry_after": holding.RETRY_AFTER if refused and not read.messages else None,
    }
    content = joined(values, messages=f"[{messages}]")
    return HttpResponse(content, content_type="application/json")


def _message(row: StoredMessage, with_body: bool) -> str:
    try:
        return message_out(row, with_body=with_body, damaged=False)
    except ValueError:  # DamagedBody, or not UTF-8
        return message_out(row, with_body=False, damaged=True)
