"""Middleware: what runs around every handler call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from streams import Outgoing, Reject, consumer, send, send_many
from streams.checks import check_settings
from streams.models import DeadMessage, RetryMessage
from streams.testing import drain
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

HERE = "tests.streams.test_middleware"
calls: list[Any] = []


def outer(call: Callable[[Any], Any], given: Any) -> Any:
    calls.append("outer")
    try:
        return call(given)
    finally:
        calls.append("outer ended")


def inner(call: Callable[[Any], Any], given: Any) -> Any:
    calls.append("inner")
    return call(given)


def in_the_way(call: Callable[[Any], Any], given: Any) -> Any:
    raise Reject("not for this tenant")


def silent_after(call: Callable[[Any], Any], given: Any) -> None:
    call(given)  # and forgets to return what it returns


def silent(call: Callable[[Any], Any], given: Any) -> None:
    """Does not call."""


def writes(call: Callable[[Any], Any], given: Any) -> Any:
    calls.append(connection.in_atomic_block)
    Order.objects.create()
    return call(given)


NOT_CALLABLE = 5


@pytest.fixture
def around(ems_settings: Callable[..., None]) -> Callable[..., None]:
    calls.clear()

    def use(*names: str) -> None:
        ems_settings(MIDDLEWARE=[f"{HERE}.{name}" for name in names])

    return use


@pytest.mark.parametrize("batch", [None, 10])
@pytest.mark.parametrize("mode", ["cluster", "broadcast"])
def test_the_first_is_the_outermost(around, batch, mode):
    around("outer", "inner")

    @consumer("orders", group="mail", batch=batch, mode=mode)
    def handle(given):
        calls.append("handler")

    drain()
    send("orders", 1)
    assert drain().done == 1
    assert calls == ["outer", "inner", "handler", "outer ended"]


def test_what_it_raises_counts_as_the_handlers_own(around):
    around("outer", "in_the_way")
    consumer("orders", group="mail")(calls.append)
    send("orders", 1)
    assert drain().dead == 1
    assert calls == ["outer", "outer ended"]
    assert "not for this tenant" in DeadMessage.objects.get().error


def test_the_result_of_a_batch_goes_through_it(around):
    around("outer", "inner")

    @consumer("orders", group="mail", batch=10)
    def handle(messages):
        return {messages[1]: ValueError("no")}

    send_many([Outgoing("orders", n) for n in range(3)])
    assert drain().failed == 1
    assert RetryMessage.objects.get().offset == 1


def test_one_that_does_not_call_has_handled_the_message(around):
    around("silent")
    consumer("orders", group="mail")(calls.append)
    send("orders", 1)
    assert drain().done == 1
    assert calls == []


def test_it_is_a_part_of_an_atomic_call(around):
    around("writes")

    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    assert drain().dead == 1
    assert calls == [True]
    assert not Order.objects.exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x.y", "must be a list"),
        ([5], "must be a list"),
        (["nowhere"], "must be a list"),
        (["tests.nowhere.at_all"], "cannot be imported"),
        ([f"{HERE}.nowhere"], "cannot be imported"),
        ([f"{HERE}.NOT_CALLABLE"], "cannot be called"),
    ],
)
def test_a_wrong_one_is_found_by_the_checks(ems_settings, value, said):
    ems_settings(MIDDLEWARE=value)
    (found,) = check_settings()
    assert (found.id, said in found.msg) == ("ems.E001", True)


@pytest.mark.parametrize("returned", [False, True, 0, {}, "done"])
def test_a_handler_of_one_message_that_returns_something_fails(around, returned):
    """Others mean by “return False” that it has failed: nothing may pass for a success."""
    around("silent_after")
    consumer("orders", group="mail", max_retries=0)(lambda message: returned)
    send("orders", 1)
    result = drain()
    assert (result.done, result.dead) == (0, 1)
    assert isinstance(result.errors[0], TypeError)
    assert f"must return None, not {returned!r}" in DeadMessage.objects.get().error


@pytest.mark.parametrize("returned", [False, 7, ["x"], {"x": ValueError()}])
def test_a_batch_handler_that_returns_what_it_may_not_fails_as_a_whole(returned):
    consumer("orders", group="mail", batch=5)(lambda messages: returned)
    send_many([Outgoing("orders", n) for n in range(2)])
    result = drain()
    assert (result.done, result.failed) == (0, 2)
    assert "None or {message: exception}" in str(result.errors[0])
