"""What a host with ``mypy --strict`` may write: no error here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from streams import (
    Outgoing,
    ReceivedMessage,
    Reject,
    Retry,
    SendResult,
    StreamsError,
    asend,
    consumer,
    send,
    send_many,
)
from streams.testing import DrainResult, advance, drain, sent


@consumer("films", group="one", threads=2, start="latest", atomic=True)
def one(message: ReceivedMessage) -> None:
    if message.attempt > 3:
        raise Reject("too often")
    raise Retry("later", delay=timedelta(seconds=5))


@consumer("films", group="many", batch=10, max_retries=3, consume_timeout=2.5)
def many(messages: Sequence[ReceivedMessage]) -> Mapping[ReceivedMessage, BaseException] | None:
    return {message: ValueError() for message in messages if message.body is None}


@consumer("films", group="waits", atomic=True)
async def waits(message: ReceivedMessage) -> None:
    await asend("seen", message.body, key=message.offset)


@dataclass
class Film:
    title: str


class Row(TypedDict):
    title: str


@consumer("films", group="typed", body=Film)
def typed(message: ReceivedMessage[Film]) -> None:
    message.body.title.upper()


@consumer("films", group="typed-many", body=Row, batch=10)
def typed_many(
    messages: Sequence[ReceivedMessage[Row]],
) -> Mapping[ReceivedMessage[Row], BaseException]:
    return {message: ValueError() for message in messages if not message.body["title"].strip()}


@consumer("films", group="typed-waits", body=Film)
async def typed_waits(message: ReceivedMessage[Film]) -> None:
    await asend("seen", Film(message.body.title))


# Without its type a message has a body of any kind, also where the consumer has one.
@consumer("films", group="typed-plainly", body=Film)
def typed_plainly(message: ReceivedMessage) -> None:
    message.body.title.upper()


def produce() -> int:
    result: SendResult = send("films", {"a": 1}, key="k", headers={"x": "y"}, delay=1)
    results: list[SendResult] = send_many([Outgoing("films", "text"), Outgoing("films", b"raw")])
    try:
        return result.message_id + results[0].partition
    except StreamsError:
        return 0


async def wait(message: ReceivedMessage[Film]) -> None:
    await typed_waits(message)  # it is async still


async def produce_async() -> SendResult:
    return await asend("films", [1, 2])


def consume() -> int:
    advance(timedelta(minutes=1))
    result: DrainResult = drain("one")
    one_message: Outgoing = sent("films")[0]
    # The decorator gives the function back as it was.
    many([])
    return result.done + len(one_message.topic)
