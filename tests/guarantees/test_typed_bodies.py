"""A body that is not of the consumer's type: a dead letter at once, and nobody else's trouble."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from streams import Outgoing, ReceivedMessage, Retry, consumer, send, send_many
from streams.consume import registry
from streams.consume.outcome.dead_letter import redrive
from streams.errors import InvalidBody
from streams.models import Cursor, DeadMessage, Delivery, RetryMessage
from streams.observe.audit.walk import audit
from streams.testing import DrainResult, advance, drain
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


class Paid(msgspec.Struct):
    amount: int


GOOD, BAD = {"amount": 1}, {"amount": "a lot"}
SAYS = "$.amount: expected int, got str"


def letters() -> list[tuple[int, int, str, str]]:
    rows = DeadMessage.objects.order_by("offset")
    return list(rows.values_list("offset", "attempts", "error_class", "error"))


def dead(*offsets: int) -> list[tuple[int, int, str, str]]:
    return [(offset, 1, "streams.errors.InvalidBody", SAYS) for offset in offsets]


def sent(*bodies: Any) -> None:
    send_many([Outgoing("orders", body, key="k") for body in bodies])


def sound() -> bool:
    return not list(audit("default"))


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"atomic": True}], ids=str)
def test_it_is_a_dead_letter_at_once_and_the_handler_is_not_called(options):
    seen = []
    consumer("orders", group="mail", body=Paid, max_retries=9, **options)(
        lambda message: seen.append((message.offset, message.body))
    )
    sent(GOOD, BAD, GOOD)
    result = drain("mail")
    assert (result.done, result.failed, result.dead) == (2, 1, 1)
    assert seen == [(0, Paid(1)), (2, Paid(1))]
    assert letters() == dead(1)
    assert not RetryMessage.objects.exists()
    assert sound()


@pytest.mark.parametrize("atomic", [False, True])
def test_in_a_batch_only_such_messages_are_dead_letters(atomic):
    calls = []

    @consumer("orders", group="mail", body=Paid, batch=5, atomic=atomic)
    def pay(messages):
        calls.append([message.offset for message in messages])
        Order.objects.create(number=str(len(messages)))

    sent(BAD, GOOD, BAD, GOOD, GOOD)
    result = drain("mail")
    assert (result.done, result.dead) == (3, 2)
    assert calls == [[1, 3, 4]]
    assert Order.objects.get().number == "3"
    assert letters() == dead(0, 2)
    assert sound()


def test_a_batch_of_them_alone_makes_no_call():
    @consumer("orders", group="mail", body=Paid, batch=5)
    def pay(messages):
        raise AssertionError(messages)

    sent(BAD, BAD)
    assert drain("mail").dead == 2
    assert letters() == dead(0, 1)


@pytest.mark.parametrize("atomic", [False, True])
def test_they_are_dead_letters_though_the_call_for_the_others_fails(atomic):
    calls = []

    @consumer("orders", group="mail", body=Paid, batch=5, atomic=atomic)
    def pay(messages):
        calls.append([message.offset for message in messages])
        if len(calls) == 1:
            raise Retry("later", delay=1)

    sent(GOOD, BAD, GOOD)
    result = drain("mail")
    assert (result.done, result.failed, result.dead) == (0, 3, 1)
    assert letters() == dead(1)
    advance(timedelta(minutes=1))
    assert drain("mail").done == 2
    assert calls == [[0, 2], [0], [2]]
    assert sound()


def test_what_a_batch_handler_says_of_the_others_holds_too():
    @consumer("orders", group="mail", body=Paid, batch=5)
    def pay(messages):
        return {messages[0]: ValueError("no")}

    sent(GOOD, BAD, GOOD)
    result = drain("mail")
    assert (result.done, result.failed, result.dead) == (1, 2, 1)
    assert letters() == dead(1)
    assert [retry.offset for retry in RetryMessage.objects.all()] == [0]


@pytest.mark.parametrize("atomic", [False, True])
def test_in_an_ordered_batch_what_comes_after_it_is_handled_once_and_in_its_turn(atomic):
    calls = []

    @consumer("orders", group="mail", body=Paid, batch=5, ordered=True, atomic=atomic)
    def pay(messages):
        calls.append([message.offset for message in messages])

    sent(GOOD, GOOD, BAD, GOOD, BAD)
    result = drain("mail")
    assert (result.done, result.dead) == (3, 2)
    assert calls == [[0, 1], [3]]
    assert letters() == dead(2, 4)
    assert Cursor.objects.get().next_offset == 5
    assert sound()


def test_async_handlers_get_the_value_too():
    seen = []

    @consumer("orders", group="mail", body=Paid, batch=5)
    async def pay(messages):
        seen.append([message.body for message in messages])

    sent(GOOD, BAD)
    result = drain("mail")
    assert (result.done, result.dead, seen) == (1, 1, [[Paid(1)]])


def test_a_validator_that_fails_otherwise_is_a_failed_attempt():
    """As when it asks a database that is away."""
    failing = [ConnectionError("away")]

    class Checked(pydantic.BaseModel):
        amount: int

        @pydantic.field_validator("amount")
        @classmethod
        def check(cls, value: int) -> int:
            if failing and value == 7:
                raise failing.pop()
            return value

    seen: list[int] = []
    consumer("orders", group="mail", body=Checked, batch=5)(
        lambda messages: seen.extend(message.offset for message in messages)
    )
    sent(GOOD, {"amount": 7}, BAD)
    result = drain("mail")
    assert (result.done, result.failed, result.dead) == (1, 2, 1)
    advance(timedelta(minutes=1))
    assert drain("mail").done == 1
    assert seen == [0, 1]


def test_a_broadcast_consumer_logs_it_and_goes_on(caplog):
    seen = []
    consumer("orders", group="cache", body=Paid, mode="broadcast")(
        lambda message: seen.append(message.body)
    )
    sent(GOOD, BAD, GOOD)
    result = drain("cache")
    assert result == DrainResult(done=2, failed=1, errors=result.errors)
    assert [str(error) for error in result.errors] == [SAYS]
    assert isinstance(result.errors[0], InvalidBody)
    assert seen == [Paid(1), Paid(1)]
    assert SAYS in caplog.text
    for model in (DeadMessage, RetryMessage, Delivery):
        assert not model.objects.exists()


def test_a_dead_letter_is_handled_once_its_type_fits():
    """The consumer was wrong: it is deployed again, and the letter is redriven as it is."""

    class PaidText(msgspec.Struct):
        amount: int | str

    seen: list[ReceivedMessage[PaidText]] = []
    consumer("orders", group="mail", body=Paid)(lambda message: None)
    sent(BAD)
    drain("mail")
    registry._registered.clear()
    consumer("orders", group="mail", body=PaidText)(seen.append)
    redrive(DeadMessage.objects.get())
    assert drain("mail").done == 1
    assert seen[0].body == PaidText("a lot")


def test_each_group_of_a_topic_has_a_type_of_its_own():
    seen: list[Any] = []

    class Amount(msgspec.Struct):
        amount: int | str

    consumer("orders", group="mail", body=Paid)(lambda message: seen.append(message.body))
    consumer("orders", group="board", body=Amount)(lambda message: seen.append(message.body))
    consumer("orders", group="log")(lambda message: seen.append(message.body))
    send("orders", BAD)
    assert (drain("mail").dead, drain("board").done, drain("log").done) == (1, 1, 1)
    assert seen == [Amount("a lot"), BAD]
