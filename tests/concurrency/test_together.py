"""Sends of several threads by one statement: each gets its own id, and a failure is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)

from streams import Outgoing, SendResult, send, send_many
from streams.errors import InvalidName, SendOutcomeUnknown
from streams.models import Message
from streams.produce import insert, together
from tests.processes import PATIENCE_SECONDS, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

InThread = Callable[..., "Future[Any]"]
LEAD = together._Queue._lead
LOST = OperationalError(2013, "Lost connection to server during query")


class Statements:
    """The INSERTs of this process, of which the first waits until it may go on."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.errors: dict[int, BaseException] = {}  # by the number of the statement
        self.began, self.go_on = threading.Event(), threading.Event()

    def several(self, alias: str, chunk: list[Any]) -> list[int]:
        self._note(len(chunk))
        return insert.insert_chunk(alias, chunk)

    def lead(self, queue: Any, alias: str, one: Any, alone: Callable[[], int]) -> None:
        def noted() -> int:
            self._note(1)
            return alone()

        LEAD(queue, alias, one, noted)

    def _note(self, size: int) -> None:
        self.sizes.append(size)
        number = len(self.sizes)
        if number == 1:
            self.began.set()
            assert self.go_on.wait(PATIENCE_SECONDS)
        if number in self.errors:
            raise self.errors[number]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch, ems_settings: Any) -> Iterator[Statements]:
    ems_settings(SEND_TOGETHER=True)
    send("orders", "the topic")
    made = Statements()
    monkeypatch.setattr(together, "insert_chunk", made.several)
    monkeypatch.setattr(together._Queue, "_lead", lambda *words: made.lead(*words))
    yield made
    made.go_on.set()


@pytest.fixture
def five(in_thread: InThread, statements: Statements) -> Callable[[], list[Future[SendResult]]]:
    """Send in five threads: four of them come while the first one inserts."""

    def begin() -> list[Future[SendResult]]:
        sent = [in_thread(send, "orders", 0)]
        assert statements.began.wait(PATIENCE_SECONDS)
        queue = together._queues["default"]
        for number in range(1, 5):
            sent.append(in_thread(send, "orders", number))
            wait_for(lambda number=number: len(queue._waiting) == number)  # type: ignore[misc]
        statements.go_on.set()
        return sent

    return begin


def test_what_comes_while_one_inserts_goes_in_the_next_statement(five, statements) -> None:
    results = [one.result(PATIENCE_SECONDS) for one in five()]
    assert statements.sizes == [1, 4]
    found = dict(Message.objects.values_list("pk", "body"))
    for number, result in enumerate(results):
        assert bytes(found[result.message_id]) == str(number).encode()
    # In the order in which they came.
    assert [one.message_id for one in results] == sorted(one.message_id for one in results)


def test_alone_it_inserts_at_once(statements) -> None:
    statements.go_on.set()
    assert send("orders", 1).message_id < send("orders", 2).message_id
    assert statements.sizes == [1, 1]


def test_in_a_transaction_it_is_the_callers_own(statements) -> None:
    with transaction.atomic():
        send("orders", 1)
        transaction.set_rollback(True)
    assert statements.sizes == []
    assert Message.objects.count() == 1


def test_a_wrapper_of_the_statement_may_send(statements, in_thread: InThread) -> None:
    """It would wait for the statement that it is a part of."""
    statements.go_on.set()

    def count(execute: Any, sql: str, *words: Any) -> Any:
        if sql.startswith(("INSERT INTO `ems_msg`", 'INSERT INTO "ems_msg"')):
            connection.execute_wrappers.remove(count)
            send("orders", "counted")
        return execute(sql, *words)

    def sends() -> SendResult:
        connection.execute_wrappers.append(count)
        return send("orders", 1)

    assert in_thread(sends).result(PATIENCE_SECONDS)
    assert Message.objects.count() == 3


def test_by_default_each_thread_sends_by_itself(statements, ems_settings) -> None:
    ems_settings(SEND_TOGETHER=False)
    send("orders", 1)
    assert statements.sizes == []


def test_what_is_refused_never_gets_into_a_statement(five, statements) -> None:
    sent = five()
    with pytest.raises(InvalidName):
        send("orders", 1, tag="not a tag!\n")
    assert len({one.result(PATIENCE_SECONDS).message_id for one in sent}) == 5
    assert sum(statements.sizes) == 5


def test_an_error_of_a_statement_of_several_is_that_of_the_message_that_has_it(
    five, statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None was inserted: each sends again by itself, and only the bad one fails."""
    statements.errors[2] = IntegrityError(1452, "a foreign key")
    results = [one.result(PATIENCE_SECONDS) for one in five()]
    assert statements.sizes == [1, 4]
    assert len({one.message_id for one in results}) == 5
    assert Message.objects.count() == 6


def test_a_reply_that_is_lost_is_unknown_to_all_of_the_statement(five, statements) -> None:
    statements.errors[2] = LOST
    first, *others = five()
    assert first.result(PATIENCE_SECONDS)
    for one in others:
        with pytest.raises(SendOutcomeUnknown):
            one.result(PATIENCE_SECONDS)
    assert Message.objects.count() == 2
    assert send("orders", "later").message_id


def fail_to_look(number: int) -> Any:
    """Return a wrapper of statements: to ask how far ids are apart fails with this error."""

    def wrapper(execute: Any, sql: str, *words: Any) -> Any:
        if "auto_increment_increment" in sql:
            raise OperationalError(number, "not asked")
        return execute(sql, *words)

    return wrapper


@pytest.mark.mysql
@pytest.mark.parametrize("number", [2006, 1317])
def test_no_message_of_several_is_inserted_twice_if_the_step_of_ids_is_not_known(
    five, statements, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The INSERT is committed by itself: whatever fails after it, the messages are sent."""
    real = insert.insert_chunk

    def insert_chunk(alias: str, chunk: list[Any]) -> list[int]:
        with connections[alias].execute_wrapper(fail_to_look(number)):
            return real(alias, chunk)

    monkeypatch.setattr(insert, "insert_chunk", insert_chunk)
    results = [one.result(PATIENCE_SECONDS) for one in five()]
    assert statements.sizes == [1, 4]
    assert len({one.message_id for one in results}) == 5
    assert Message.objects.count() == 6


@pytest.mark.mysql
@pytest.mark.parametrize("number", [2006, 1317])
def test_of_a_send_of_many_that_fails_none_is_inserted_if_the_step_of_ids_is_not_known(
    number: int,
) -> None:
    send("orders", "the topic")
    connection.close()  # a new session, which has not been asked yet
    with connection.execute_wrapper(fail_to_look(number)):
        try:
            sent = len(send_many([Outgoing("orders", 1), Outgoing("orders", 2)]))
        except OperationalError:
            sent = 0
    assert sent == (2 if connection.features.can_return_rows_from_bulk_insert else 0)
    assert Message.objects.count() == 1 + sent


def test_an_error_of_a_single_one_is_raised(statements) -> None:
    statements.go_on.set()
    statements.errors[1] = DatabaseError("no")
    with pytest.raises(DatabaseError, match="no"):
        send("orders", 1)
    assert send("orders", 2).message_id


def test_who_is_interrupted_while_it_inserts_leaves_nobody_waiting(five, statements) -> None:
    statements.errors[2] = KeyboardInterrupt()
    _first, second, *others = five()
    with pytest.raises(KeyboardInterrupt):
        second.result(PATIENCE_SECONDS)
    for one in others:
        with pytest.raises(SendOutcomeUnknown):
            one.result(PATIENCE_SECONDS)
    assert send("orders", "later").message_id


def test_a_statement_has_a_bound(statements, in_thread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "CHUNK_ROWS", 3)
    sent = [in_thread(send, "orders", 0)]
    assert statements.began.wait(PATIENCE_SECONDS)
    sent += [in_thread(send, "orders", number) for number in range(1, 8)]
    wait_for(lambda: len(together._queues["default"]._waiting) == 7)
    statements.go_on.set()
    assert len({one.result(PATIENCE_SECONDS).message_id for one in sent}) == 8
    assert statements.sizes == [1, 3, 3, 1]
