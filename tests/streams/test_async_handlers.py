"""Async handlers: where they run, which connection they have, and when they are cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from streams import Outgoing, Reject, asend, consumer, send, send_many
from streams.checks import check_settings
from streams.models import DeadMessage, RetryMessage
from streams.testing import drain, sent
from tests.consuming import Process
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

HERE = "tests.streams.test_async_handlers"
number = contextvars.ContextVar("number", default=0)


def numbers() -> list[str]:
    return sorted(Order.objects.values_list("number", flat=True))


@pytest.mark.parametrize("mode", ["cluster", "broadcast"])
def test_an_async_handler_is_run_to_its_end(mode):
    seen = []

    @consumer("orders", group="mail", mode=mode)
    async def handle(message):
        await asyncio.sleep(0)
        seen.append(message.body)

    drain()
    send_many([Outgoing("orders", n) for n in range(3)])
    assert drain().done == 3
    assert seen == [0, 1, 2]


class Handler:
    async def __call__(self, message):
        await Order.objects.acreate(number=message.body)


async def of_a_shop(shop, message):
    await Order.objects.acreate(number=shop + message.body)


@pytest.mark.parametrize(
    ("handler", "written"),
    [(Handler(), "7"), (functools.partial(of_a_shop, "Rome "), "Rome 7")],
    ids=["object", "partial"],
)
def test_whatever_makes_a_coroutine_is_run(handler, written):
    consumer("orders", group="mail")(handler)
    send("orders", "7")
    assert drain().done == 1
    assert numbers() == [written]


def test_an_async_batch_handler_says_what_has_failed():
    @consumer("orders", group="mail", batch=10)
    async def handle(messages):
        await asyncio.gather(*(Order.objects.acreate(number=m.body) for m in messages))
        return {messages[1]: ValueError("no")}

    send_many([Outgoing("orders", f"{n}") for n in range(3)])
    result = drain()
    assert (result.done, result.failed) == (2, 1)
    assert RetryMessage.objects.get().offset == 1
    assert numbers() == ["0", "1", "2"]


@pytest.mark.parametrize("error", [ValueError(), Reject("no"), SystemExit(), TimeoutError("mine")])
def test_what_an_async_handler_raises_is_its_failure(error):
    @consumer("orders", group="mail")
    async def handle(message):
        raise error

    send("orders", 1)
    assert drain().errors == [error]


@pytest.mark.parametrize("batch", [None, 2])
def test_the_orm_of_an_atomic_async_handler_is_in_its_transaction(batch):
    """Of two calls the second one fails: what it wrote and sent is rolled back."""
    seen = []

    @consumer("orders", group="mail", atomic=True, batch=batch)
    async def handle(given):
        for message in given if batch else [given]:
            await Order.objects.acreate(number=message.body)
            await asend("mails", message.body)
            seen.append(await sync_to_async(lambda: connection.in_atomic_block)())
            if message.body == "1":
                raise ValueError

    send_many([Outgoing("orders", f"{n}") for n in range(2)])
    result = drain()
    assert seen == [True, True]
    assert result.failed == (2 if batch else 1)
    assert numbers() == ([] if batch else ["0"])
    assert [mail.body for mail in sent("mails")] == numbers()


def test_the_orm_uses_the_thread_and_the_connection_of_the_worker():
    seen = []

    @consumer("orders", group="mail")
    async def handle(message):
        def look():
            return threading.get_ident(), connection.connection

        seen.extend([await sync_to_async(look)(), (threading.get_ident(), None)])

    send("orders", 1)
    drain()
    (of_the_orm, connected), (of_the_loop, _none) = seen
    assert (of_the_orm, connected) == (threading.get_ident(), connection.connection)
    assert of_the_loop != of_the_orm


def test_a_handler_that_takes_too_long_is_cancelled_and_may_clean_up():
    ended = []

    @consumer("orders", group="mail", consume_timeout=0.05)
    async def handle(message):
        if message.body == "hangs":
            try:
                await asyncio.Event().wait()
            finally:
                await Order.objects.acreate(number="cleaned up")
        ended.append(message.body)

    send_many([Outgoing("orders", body) for body in ("hangs", "next")])
    result = drain()
    assert (result.done, result.failed, ended) == (1, 1, ["next"])
    assert isinstance(result.errors[0], TimeoutError)
    assert "cancelled after 0.05 s" in RetryMessage.objects.get().last_error
    assert numbers() == ["cleaned up"]


def test_a_cancelled_atomic_handler_has_no_effect():
    @consumer("orders", group="mail", consume_timeout=0.2, atomic=True)
    async def handle(message):
        await Order.objects.acreate(number="1")
        await asyncio.Event().wait()

    send("orders", 1)
    assert isinstance(drain().errors[0], TimeoutError)
    assert numbers() == []


@pytest.mark.parametrize("atomic", [False, True])
def test_what_still_runs_on_the_connection_when_a_call_is_cancelled_is_part_of_the_call(atomic):
    """A cancelled call ends only after it: the settlement and the next call use the connection."""
    go, events = threading.Event(), []

    @consumer("orders", group="mail", consume_timeout=0.05, atomic=atomic)
    async def handle(message):
        if message.body == "next":
            events.append("next call")
            return

        def write():
            go.wait()
            Order.objects.create(number="1")
            events.append("written")

        # The statement ends after the cancellation.
        asyncio.get_running_loop().call_later(0.2, go.set)
        await sync_to_async(write)()

    send_many([Outgoing("orders", body) for body in ("slow", "next")])
    assert isinstance(drain().errors[0], TimeoutError)
    assert events == ["written", "next call"]
    assert numbers() == ([] if atomic else ["1"])


def test_the_lease_of_a_cancelled_call_is_kept_while_it_cleans_up():
    left: list[float] = []

    @consumer("orders", group="mail", consume_timeout=0.05)
    async def handle(message):
        try:
            await asyncio.Event().wait()
        finally:
            (handling,) = process.held.all()
            left.append(handling.time_left().total_seconds())

    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    assert 0 < left[0] < 5


def test_one_loop_runs_all_calls_and_is_closed_at_the_end():
    loops, left = [], []

    @consumer("orders", group="mail")
    async def handle(message):
        loops.append(asyncio.get_running_loop())
        if message.body == 0:
            left.append(asyncio.create_task(asyncio.Event().wait()))

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    assert len(loops) == 3
    assert len(set(loops)) == 1
    assert loops[0].is_closed()
    assert left[0].cancelled()


def with_number(call: Callable[[Any], Any], given: Any) -> Any:
    token = number.set(7)
    try:
        return call(given)
    finally:
        Order.objects.create(number="after the handler")
        number.reset(token)


def test_middleware_is_around_the_whole_call_and_its_context_is_known_inside(ems_settings):
    ems_settings(MIDDLEWARE=[f"{HERE}.with_number"])
    seen = []

    @consumer("orders", group="mail")
    async def handle(message):
        await asyncio.sleep(0)
        seen.extend([number.get(), await sync_to_async(number.get)(), await Order.objects.acount()])

    send("orders", 1)
    assert drain().done == 1
    assert seen == [7, 7, 0]
    assert number.get() == 0
    assert Order.objects.count() == 1


async def async_layer(call: Callable[[Any], Any], given: Any) -> Any:
    return call(given)


def test_async_middleware_would_run_nothing_and_is_refused(ems_settings):
    ems_settings(MIDDLEWARE=[f"{HERE}.async_layer"])
    (error,) = check_settings()
    assert error.id == "ems.E001"
    assert "async_layer" in str(error.msg)


def test_a_coroutine_that_a_plain_function_makes_is_a_failure_that_says_so():
    consumer("orders", group="mail", max_retries=0)(lambda message: Handler()(message))
    send("orders", "7")
    assert drain().dead == 1
    assert "nothing has run" in DeadMessage.objects.get().error
    assert numbers() == []
