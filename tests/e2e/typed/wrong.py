"""What mypy must refuse: each line that ends in the word does, and no other one."""
# ruff: noqa: B018

from collections.abc import Sequence
from dataclasses import dataclass

from streams import ReceivedMessage, consumer, send


def one(message: ReceivedMessage) -> None: ...


def many(messages: Sequence[ReceivedMessage]) -> None: ...


def returns_numbers(messages: Sequence[ReceivedMessage]) -> list[int]:
    return []


def returns_a_bool(message: ReceivedMessage) -> bool:
    return False


@dataclass
class Film:
    title: str


def typed(message: ReceivedMessage[Film]) -> None:
    message.body.name  # refused


def typed_otherwise(message: ReceivedMessage[str]) -> None: ...


consumer("films", group="f", body=Film)(typed)
consumer("films", group="g", body=Film)(typed_otherwise)  # refused
consumer("films", group="h", body=Film, batch=2)(typed)  # refused
consumer("films", group="i", body=Film)(returns_a_bool)  # refused
consumer("films", group="j", body=Film("M"))(typed)  # refused
consumer("films", group="a")(many)  # refused
consumer("films", group="e")(returns_a_bool)  # refused
consumer("films", group="b", batch=2)(one)  # refused
consumer("films", group="c", batch=2)(returns_numbers)  # refused
consumer("films")(one)  # refused
consumer("films", group="d", start="middle")(one)  # refused
send("films", 1, delay="soon")  # refused
send("films", 1, headers={"a": 1})  # refused
send("films", 1).nothing  # refused
send(7)  # refused
