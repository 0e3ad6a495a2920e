"""Behind a proxy that splits reads, plain reads may come from a replica that is a commit behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams import Retry, consumer, send
from streams.consume.limits import limits
from streams.database.elsewhere import elsewhere
from streams.deliver.handling import Handling
from streams.log import topics
from streams.log.bodies import message_in_dead_letter
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Delivery, HeldKey, Message, State, Topic, UtcNow
from streams.observe.audit.walk import audit
from streams.testing import drain
from tests.consuming import Process, registered
from tests.faults import statements
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.mysql,
]


class Replica:
    """A session with an old snapshot, where the plain reads of all others outside transactions go.

    It shows what was committed before the last ``catch_up()``.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        session.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.catch_up()

    def catch_up(self) -> None:
        self._session.execute("ROLLBACK")
        self._session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    def __call__(
        self, execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any
    ) -> Any:
        plain = sql.startswith("SELECT") and "FOR UPDATE" not in sql and "@@" not in sql
        connection = context["connection"]
        if connection is self._session.connection or connection.in_atomic_block or not plain:
            return execute(sql, parameters, many, context)
        cursor = self._session.connection.cursor()
        found = cursor.execute(sql, parameters)
        context["cursor"].cursor = cursor.cursor
        return found


@pytest.fixture
def replica(second_connection: Callable[[], Session]) -> Replica:
    return Replica(second_connection())


def test_a_failed_message_gets_its_second_attempt(replica: Replica) -> None:
    attempts: list[int] = []

    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise Retry(delay=0)

    process = Process("mail")
    send("orders", 1)
    sequence("default")
    with statements(replica):
        for _step in range(2):
            replica.catch_up()
            process.worker.step()
    assert attempts == [1, 2]
    assert {row.state for row in Delivery.objects.all()} == {State.RETRY, State.DONE}
    assert audit("default") == []


@pytest.mark.parametrize("exists", [False, True], ids=["new", "created since by another"])
def test_the_first_send_to_a_topic_finds_it(replica: Replica, exists: bool) -> None:
    if exists:
        elsewhere("default", lambda: Topic.objects.create(name="orders"))
    topics.forget()
    with statements(replica):
        send("orders", 1)
    assert Message.objects.get().partition.topic.name == "orders"


def test_the_copy_of_an_edited_letter_is_the_edited_one(replica: Replica) -> None:
    @consumer("orders", group="mail", max_retries=0)
    def handle(message: Any) -> None:
        raise ValueError

    send("orders", "wrong")
    drain()
    replica.catch_up()
    DeadMessage.objects.update(body=b"right", size=5, edited_at=UtcNow())
    with statements(replica):
        (copy,) = message_in_dead_letter(DeadMessage.objects.get().pk, "default")
    assert copy.raw_body == b"right"


def test_a_failed_message_holds_its_key(replica: Replica) -> None:
    @consumer("orders", group="mail", ordered="key")
    def handle(message: Any) -> None:
        raise Retry(delay=60)

    process = Process("mail")
    send("orders", 1, key="a")
    sequence("default")
    delivery = process.claim()
    registration = registered("orders", "mail")
    in_force = limits(delivery.group, registration, "default")
    with statements(replica):
        Handling(delivery, registration, in_force).run()
    assert HeldKey.objects.get().key == "a"
    assert audit("default") == []
