"""atomic=True: a transaction that ended while the handler ran acknowledges nothing.

A server ends a transaction by itself: a deadlock rolls it back, a statement such as CREATE TABLE
commits it. A handler that swallows the error of the deadlock, or gets none, returns as if all were
well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, transaction

from streams import Outgoing, consumer, send, send_many
from streams.models import Delivery, RetryMessage, State
from streams.testing import advance, drain
from tests.hostapp.models import Order
from tests.processes import PATIENCE_SECONDS, wait_for
from tests.sessions import Threads

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def numbers() -> list[str]:
    return sorted(Order.objects.values_list("number", flat=True))


def note(number: str, text: str) -> None:
    with connection.cursor() as cursor:  # raw: Django would mark the transaction as broken
        cursor.execute("UPDATE hostapp_order SET note = %s WHERE number = %s", [text, number])


def assert_nothing_is_acknowledged() -> None:
    (row,) = RetryMessage.objects.all()
    assert (row.offset, row.attempt) == (0, 2)
    assert row.last_error.startswith("TransactionEnded: ")
    assert Delivery.objects.get().state == State.RETRY


@pytest.mark.mysql
@pytest.mark.parametrize("batch", [None, 5])
def test_a_deadlock_that_the_handler_swallows_fails_the_attempt(
    in_thread: Threads, batch: int | None
) -> None:
    Order.objects.bulk_create([Order(number="a"), Order(number="b")])
    holds = threading.Event()

    def other() -> None:
        """Hold b and then want a. It has written more, so the server spares it."""
        with transaction.atomic():
            Order.objects.bulk_create([Order(number=f"other {n}") for n in range(100)])
            note("b", "other")
            holds.set()
            wait_for(lambda: attempts, "the handler begins")
            note("a", "other")

    attempts: list[bool] = []

    @consumer("orders", group="mail", atomic=True, batch=batch)
    def handle(messages: object) -> None:
        first = not attempts
        Order.objects.create(number=f"attempt {len(attempts) + 1}")
        note("a", "handler")
        attempts.append(True)
        if first:
            with suppress(OperationalError):
                note("b", "handler")  # deadlock: the server has rolled back all of the above

    send("orders", 1)
    beside = in_thread(other)
    assert holds.wait(PATIENCE_SECONDS)
    assert drain("mail").failed == 1
    beside.result(PATIENCE_SECONDS)
    assert "attempt 1" not in numbers()
    assert_nothing_is_acknowledged()
    advance(timedelta(minutes=1))
    assert drain("mail").done == 1
    assert "attempt 2" in numbers()


# ROLLBACK leaves what a lock wait leaves on a server with innodb_rollback_on_timeout.
ENDS = {
    "rollback": ["ROLLBACK"],
    "commit": ["COMMIT"],
    "ddl": ["CREATE TABLE made_by_handler (id int)"],
    "a second transaction": ["ROLLBACK", "BEGIN"],
}


DDL = pytest.param("ddl", marks=pytest.mark.mysql)  # SQLite has DDL in transactions


@pytest.fixture(params=["rollback", "commit", "a second transaction", DDL])
def end(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Callable[[], None]]:
    """End the open transaction by raw statements, unseen by Django."""

    def run() -> None:
        with connection.cursor() as cursor:
            for statement in ENDS[request.param]:
                cursor.execute(statement)

    yield run
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS made_by_handler")


def test_a_transaction_that_ended_inside_the_handler_fails_the_attempt(
    end: Callable[[], None],
) -> None:
    @consumer("orders", group="mail", atomic=True)
    def handle(message: object) -> None:
        if RetryMessage.objects.exists():
            return
        end()
        # On SQLite the next statement would be committed at once: nothing is open.
        if connection.vendor != "sqlite":
            Order.objects.create(number="after the end")

    send("orders", 1)
    assert drain("mail").failed == 1
    assert numbers() == []
    assert_nothing_is_acknowledged()
    advance(timedelta(minutes=1))
    assert drain("mail").done == 1


def test_the_other_messages_of_the_claim_are_not_touched() -> None:
    @consumer("orders", group="mail", atomic=True)
    def handle(message) -> None:
        Order.objects.create(number=f"{message.offset}")
        if message.offset == 1:
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")

    send_many([Outgoing("orders", n) for n in range(3)])
    result = drain("mail")
    assert (result.done, result.failed) == (2, 1)
    assert numbers() == ["0", "2"]
