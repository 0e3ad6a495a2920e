"""A purge and everybody else at the same time: nobody waits for it, and nobody is robbed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from streams import Outgoing, Retry, consumer, send, send_many
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import settle
from streams.consume.subscription import subscribe
from streams.database import batches
from streams.database.sql import retain as sql
from streams.errors import OffsetOutOfRange
from streams.log.sequencer import sequence
from streams.models import Cursor, Delivery, Message, Partition, RetryMessage, Topic, UtcNow
from streams.observe.audit.walk import audit
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.retain import purge as purging
from streams.retain.purge import Purge
from streams.testing import drain
from tests.concurrency.conftest import Stream
from tests.concurrency.locks import held_before, no_lock_waits, wait_until_one_waits
from tests.consuming import registered
from tests.processes import wait_for
from tests.sessions import Threads

pytestmark = [pytest.mark.mysql, pytest.mark.usefixtures("clean_registry")]

PRODUCERS = 3
TRIES = 4
RAISE = "UPDATE `ems_partition` SET `first_offset`"


def purge() -> purging.Purged:
    (outcome,) = Purge("default").run()
    return outcome


def read(stream: Stream, upto: int) -> None:
    Cursor.objects.filter(group=stream.group).update(next_offset=upto, start_offset=upto)


def keep(count: int) -> None:
    Topic.objects.update(retention_count=count)


def test_producers_wait_for_no_lock_while_it_runs(
    stream: Stream, in_thread: Threads, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server's own counter. Of other work on this server it can only show more."""
    monkeypatch.setattr(batches, "BATCH", 50)
    keep(0)
    waits = []
    for _ in range(TRIES):
        stream.fill(2000)
        read(stream, Partition.objects.get().next_offset)
        stop = threading.Event()
        sent = [in_thread(produce, stop) for _producer in range(PRODUCERS)]
        before = row_lock_waits()
        assert purge().deleted == 2000
        waits.append(row_lock_waits() - before)
        stop.set()
        assert all(future.result(60) > 0 for future in sent)
        if waits[-1] == 0:
            break
        sequence("default")
        purge()
    assert 0 in waits, waits


def produce(stop: threading.Event) -> int:
    """Single sends, and transactions that stay open for some statements."""
    sent = 0
    while not stop.is_set():
        send("orders", sent)
        with transaction.atomic():
            send("orders", sent)
            send_many([Outgoing("orders", n) for n in range(5)])
        sent += 7
    return sent


def database() -> str:
    return str(connection.settings_dict["NAME"])


def row_lock_waits() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")
        return int(cursor.fetchone()[1])


@pytest.mark.parametrize("held", [RAISE, "DELETE `ems_msg`"])
def test_nobody_waits_for_a_purge_that_stands_still(
    stream: Stream, in_thread: Threads, held: str
) -> None:
    """Frozen with all its locks: sends, claims, settlements and other partitions go on."""
    stream.fill(20)
    first = stream.claim(batch=10)
    assert first
    settle(first, 10, max_retries=3)
    second = stream.claim(batch=5)
    assert second
    keep(0)
    with held_before(in_thread, held, purge), no_lock_waits():
        send("orders", 1)
        assert sequence("default").busy is (held == RAISE)
        settle(second, 15, max_retries=3)
        assert stream.claim(batch=3)
        stream.group.topic.refresh_from_db()


def test_a_claim_that_moves_on_meanwhile_keeps_its_messages(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(10)
    keep(0)
    work: Callable[[], Any] = lambda: stream.claim(batch=4)  # noqa: E731
    with held_before(in_thread, "INSERT INTO `ems_topic_group_log`", work):
        assert purge().floor.offset == 0  # the cursor has moved, uncommitted
    assert purge().floor.offset == 0  # and now the delivery is there
    assert Message.objects.count() == 10
    with held_before(in_thread, "SELECT g.`id`", purge):
        assert stream.claim("other", batch=4)
    assert Message.objects.count() == 10


def test_the_floor_is_worked_out_in_one_snapshot(
    stream: Stream, in_thread: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that commits while the statement runs: the cursor is read before, the delivery after.

    The statement is stopped between the two by a lock of the server's own.
    """
    statement = sql.HOLDERS["mysql"]
    first, rest = statement.split("(SELECT MIN(d.`progress`)", 1)
    stopped = f"{first} IF(GET_LOCK('ems-floor', 60), (SELECT MIN(d.`progress`){rest}"
    stopped = stopped.replace("AND d.`progress` >= %s)", "AND d.`progress` >= %s), NULL)")
    monkeypatch.setitem(sql.HOLDERS, "mysql", stopped)
    stream.fill(10)
    read(stream, 4)
    keep(0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK('ems-floor', 0)")
        run = in_thread(purge)
        wait_for(waits_for_the_lock)
        assert stream.claim(batch=3)
        cursor.execute("SELECT RELEASE_LOCK('ems-floor')")
    (hold,) = run.result(60).floor.holds
    assert (hold.what, hold.offset) == ("cursor", 4)
    assert Message.objects.count() == 6


def waits_for_the_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST"
            " WHERE STATE = 'User lock' AND DB = DATABASE()"
        )
        return bool(cursor.fetchone()[0])


def test_a_settlement_that_leaves_a_retry_meanwhile_keeps_its_message(
    stream: Stream, in_thread: Threads
) -> None:
    stream.fill(10)
    delivery = stream.claim(batch=10)
    assert delivery
    keep(0)
    failed = [Failure(3, ValueError("no"))]
    work = lambda: settle(delivery, 10, failed, max_retries=3)  # noqa: E731
    with held_before(in_thread, "INSERT INTO `ems_retry_msg`", work):
        assert purge().floor.offset == 0
    assert purge().floor.offset == 3
    assert RetryMessage.objects.get().offset == 3
    assert audit("default") == []


def test_a_group_that_comes_meanwhile_begins_where_messages_are_kept(
    stream: Stream, in_thread: Threads
) -> None:
    """Whoever has the lock of the partition first: the other one sees what it did."""
    stream.fill(10)
    read(stream, 6)
    keep(0)
    with held_before(in_thread, RAISE, purge):
        late = in_thread(new_group, "late")
        wait_until_one_waits(database())
    late.result(30)
    assert Cursor.objects.get(group__name="late").next_offset == 6
    read(stream, 10)
    with held_before(in_thread, "INSERT INTO `ems_cursor`", lambda: new_group("later")):
        purging_ = in_thread(purge)
        wait_until_one_waits(database())
    assert purging_.result(30).floor.offset == 6
    assert Message.objects.count() == 4


def new_group(name: str) -> None:
    consumer("orders", group=name)(print)
    subscribe(registered("orders", name), "default", "earliest")


def test_a_group_that_is_set_back_meanwhile_is_not_robbed(
    stream: Stream, in_thread: Threads
) -> None:
    """reset() takes the lock of the partition, and refuses to go below first_offset."""
    stream.fill(10)
    read(stream, 10)
    keep(0)
    back = Reset(stream.group, towards(Target.parse("2")), "default")
    with held_before(in_thread, RAISE, purge):
        late = in_thread(back.run)
        wait_until_one_waits(database())
    with pytest.raises(OffsetOutOfRange):
        late.result(30)
    assert Cursor.objects.get().next_offset == 10


def test_force_leaves_what_an_atomic_handler_has_locked(stream: Stream, in_thread: Threads) -> None:
    """It is not waited for, and nobody is skipped further than the purge can go."""
    stream.fill(10)
    held = stream.claim(batch=4)
    assert held
    keep(1)
    entered, leave = threading.Event(), threading.Event()

    def atomic_handler() -> None:
        with transaction.atomic():
            settle(held, 2, max_retries=3)
            entered.set()
            assert leave.wait(60)

    handler = in_thread(atomic_handler)
    assert entered.wait(60)
    work = Purge("default", force=True)
    with no_lock_waits():
        (outcome,) = work.run()
    assert (outcome.floor.offset, outcome.skipped.rows) == (0, 0)
    assert Cursor.objects.get().next_offset == 4
    leave.set()
    handler.result(60)
    (outcome,) = work.run()
    assert (outcome.floor.offset, Message.objects.count()) == (9, 1)
    assert audit("default") == []


def test_two_purges_at_once_delete_each_message_once(stream: Stream, in_thread: Threads) -> None:
    stream.fill(3000)
    read(stream, 2900)
    keep(0)
    runs = [in_thread(purge) for _ in range(3)]
    assert sum(run.result(60).deleted for run in runs) == 2900
    assert Message.objects.count() == 100


@pytest.mark.exhaustive
def test_a_consumer_that_works_while_it_is_purged_behind_misses_nothing(
    stream: Stream, in_thread: Threads
) -> None:
    """Consumed messages are purged all the time while two groups and a producer are at work."""
    Topic.objects.update(retention_consumed=True)
    seen: dict[str, list[int]] = {"mail": [], "bill": []}
    failed: set[tuple[str, int]] = set()

    def handler(group: str) -> Callable[[Any], None]:
        def handle(message: Any) -> None:
            if message.body % 7 == 0 and (group, message.body) not in failed:
                failed.add((group, message.body))
                raise Retry("once", delay=0)
            seen[group].append(message.body)

        return handle

    for group in seen:
        consumer("orders", group=group)(handler(group))
    drain()
    stop = threading.Event()

    def purge_on() -> int:
        deleted = 0
        while not stop.is_set():
            deleted += purge().deleted
        return deleted

    purger = in_thread(purge_on)
    for start in range(0, 240, 30):
        send_many([Outgoing("orders", n) for n in range(start, start + 30)])
        drain()
    stop.set()
    deleted = purger.result(60)
    drain()  # a pass leaves a partition that the purge has locked
    for group, bodies in seen.items():
        assert sorted(bodies) == list(range(240)), group
    assert deleted + purge().deleted == 240
    assert not Delivery.objects.filter(missing__gt=0).exists()
    assert audit("default") == []


def test_old_messages_are_purged_by_time_while_new_ones_come(stream: Stream) -> None:
    stream.fill(50)
    read(stream, 50)
    Message.objects.update(sequenced_at=UtcNow(-timedelta(hours=2)))
    stream.fill(10)
    Topic.objects.update(retention_seconds=3600)
    assert purge().deleted == 50
