"""A host at REPEATABLE READ on MariaDB, with innodb_snapshot_isolation on (11.6 and newer) or off.

With it, a statement that locks a row which others have changed since the snapshot fails with error
1020, and its transaction is rolled back. The rows of EMS change all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, transaction

from streams import Retry, cancel, consumer, send
from streams.log.sequencer import sequence
from streams.models import DeadMessage, DedupKey, Delivery, Message, RetryMessage, State
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.testing import advance
from tests.consuming import Process
from tests.hostapp.models import Order
from tests.sessions import Session, Threads

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.mariadb_11,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry", "repeatable_read"),
]

HOUR = timedelta(hours=1)
SET = "SET SESSION innodb_snapshot_isolation = "


@pytest.fixture(params=["ON", "OFF"])
def repeatable_read(
    request: pytest.FixtureRequest,
    isolation_level: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    options = connection.settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "init_command", SET + request.param)
    isolation_level("repeatable read")
    return str(request.param)


def is_on() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.innodb_snapshot_isolation")
        return bool(cursor.fetchone()[0])


def numbers() -> list[str]:
    return sorted(Order.objects.values_list("number", flat=True))


def beside(in_thread: Threads, work: Callable[[], object]) -> None:
    """Do ``work`` on another connection, and wait for its end."""
    future: Future[object] = in_thread(work)
    future.result(30)


@pytest.mark.parametrize("batch", [None, 5])
@pytest.mark.parametrize("ordered", [False, True])
def test_an_atomic_call_outlasts_a_heartbeat(
    batch: int | None, ordered: bool, in_thread: Threads
) -> None:
    @consumer("orders", group="mail", atomic=True, batch=batch, ordered=ordered)
    def handle(messages: object) -> None:
        assert not Order.objects.filter(number="1").exists()  # the snapshot begins
        beside(in_thread, process.heartbeat.step)
        Order.objects.create(number="1")

    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    assert Delivery.objects.get().state == State.DONE
    assert numbers() == ["1"]
    assert not RetryMessage.objects.exists()


def test_a_retry_of_an_atomic_call_outlasts_one_too(in_thread: Threads) -> None:
    @consumer("orders", group="mail", atomic=True, max_retries=1)
    def handle(message) -> None:
        assert not Order.objects.filter(number="1").exists()
        beside(in_thread, process.heartbeat.step)
        if message.attempt == 1:
            raise Retry(delay=0)
        Order.objects.create(number="1")

    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    assert numbers() == ["1"]
    assert not RetryMessage.objects.exists()
    assert not DeadMessage.objects.exists()


def test_a_batch_that_fails_in_part_is_settled(in_thread: Threads) -> None:
    @consumer("orders", group="mail", atomic=True, batch=5, max_retries=0)
    def handle(messages):
        assert not Order.objects.exists()
        beside(in_thread, process.heartbeat.step)
        Order.objects.create(number="1")
        return {messages[0]: ValueError()}

    process = Process("mail")
    send("orders", 1)
    send("orders", 2)
    process.run_until_idle()
    assert numbers() == ["1"]
    assert DeadMessage.objects.get().offset == 0


def test_a_key_is_used_first_after_the_snapshot(second_connection: Callable[..., Session]) -> None:
    send("orders", b"0")
    with transaction.atomic():
        assert Message.objects.count() == 1  # the snapshot begins; the row of the key comes later
        assert not send("orders", b"1", dedup_key="a7").duplicate
        assert send("orders", b"1", dedup_key="a7").duplicate
    assert send("orders", b"1", dedup_key="a7").duplicate


def test_a_key_that_another_has_taken_since_the_snapshot_is_taken(
    second_connection: Callable[..., Session],
) -> None:
    send("orders", b"0", dedup_key="b8")
    other = second_connection()
    with transaction.atomic():
        assert DedupKey.objects.count() == 1  # the snapshot begins
        with other.active():
            assert not send("orders", b"1", dedup_key="a7").duplicate
        assert send("orders", b"2", dedup_key="a7").duplicate


def test_what_was_changed_since_the_snapshot_is_cancelled_or_visible(
    second_connection: Callable[..., Session],
) -> None:
    early = send("orders", 1, delay=HOUR).message_id
    other = second_connection()
    with transaction.atomic():
        assert Message.objects.count() == 1  # the snapshot begins
        with other.active():
            late = send("orders", 1, delay=HOUR, dedup_key="a7").message_id
            advance(HOUR)
            sequence("default")
            gone = send("orders", 1, delay=HOUR).message_id
            later = send("orders", 1, delay=HOUR, dedup_key="b8").message_id
            assert cancel(gone) == "cancelled"
        assert cancel(early) == "visible"
        assert cancel(late) == "visible"
        assert cancel(gone) == "unknown"
        assert cancel(later) == "cancelled"


def test_a_group_is_reset_inside_a_transaction(second_connection: Callable[..., Session]) -> None:
    """As by the admin of a project with ATOMIC_REQUESTS."""

    @consumer("orders", group="mail")
    def handle(message: object) -> None:
        pass

    process = Process("mail")
    send("orders", 1)
    other = second_connection()
    with transaction.atomic():
        assert not Delivery.objects.exists()  # the snapshot begins
        with other.active():
            process.run_until_idle()
        earliest = towards(Target.parse("earliest"))
        Reset(process.feed.group, earliest, "default", force=True).run()
    process.run_until_idle()
    assert Delivery.objects.filter(state=State.DONE).count() == 2


@pytest.mark.parametrize("fails", [False, True])
def test_the_check_stays_as_it_is_for_the_host(fails: bool, repeatable_read: str) -> None:
    message = send("orders", 1, delay=HOUR).message_id
    with transaction.atomic():
        assert Message.objects.exists()
        assert send("orders", 2, dedup_key="a7").message_id
        assert cancel(message) == "cancelled"
        if fails:
            transaction.set_rollback(True)
            with pytest.raises(Exception, match="can't execute queries"):
                cancel(message)
            transaction.set_rollback(False)
        assert is_on() == (repeatable_read == "ON")


def test_the_hosts_own_rows_are_checked(
    repeatable_read: str, second_connection: Callable[..., Session]
) -> None:
    """That this server checks at all, and that a handler still meets it where it means to."""
    Order.objects.create(number="1")
    other = second_connection()
    refused = pytest.raises(OperationalError, match="1020")
    with refused if repeatable_read == "ON" else nullcontext(), transaction.atomic():
        assert Order.objects.count() == 1  # the snapshot begins
        with other.active():
            Order.objects.update(note="other")
        Order.objects.update(note="mine")
