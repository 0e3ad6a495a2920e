"""The dedup window: the first of all sends with one key wins, if its transaction commits."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F

from streams import Outgoing, SendOutcomeUnknown, StreamsError, send, send_many
from streams.models import DedupKey, Message, UtcNow
from streams.retain.old_rows import dedup_keys
from tests.rows import nothing_written

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS = 20
ROUNDS = 8


def bodies() -> list[bytes]:
    return [bytes(body) for body in Message.objects.order_by("id").values_list("body", flat=True)]


def pass_time(by: timedelta) -> None:
    DedupKey.objects.update(expires_at=F("expires_at") - by)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_the_second_send_with_a_key_is_a_duplicate_of_the_first(in_transaction):
    def once():
        return send("orders", b"1", key="k", dedup_key="a7")

    def sends():
        if not in_transaction:
            return once()
        with transaction.atomic():
            return once()

    first, second = sends(), sends()
    assert (first.duplicate, second.duplicate) == (False, True)
    assert (second.message_id, second.topic, second.partition) == (first.message_id, "orders", 0)
    assert bodies() == [b"1"]


def test_a_key_is_one_of_its_topic():
    assert not send("orders", b"1", dedup_key="a7").duplicate
    assert not send("bills", b"1", dedup_key="a7").duplicate
    assert not send("orders", b"1", dedup_key="A7").duplicate


def test_a_key_is_free_again_after_its_window():
    first = send("orders", b"1", dedup_key="a7", dedup_window=60)
    pass_time(timedelta(seconds=59))
    assert send("orders", b"2", dedup_key="a7").duplicate
    pass_time(timedelta(seconds=1, milliseconds=1))
    again = send("orders", b"3", dedup_key="a7", dedup_window=timedelta(hours=1))
    assert again.message_id != first.message_id
    pass_time(timedelta(minutes=59))
    assert send("orders", b"4", dedup_key="a7").duplicate
    assert bodies() == [b"1", b"3"]


def test_the_window_is_ten_minutes_unless_told():
    send("orders", b"1", dedup_key="a7")
    window = DedupKey.objects.annotate(left=F("expires_at") - UtcNow()).values_list("left")
    ((left,),) = window
    assert timedelta(minutes=9) < left <= timedelta(minutes=10)


def test_a_rollback_frees_the_key():
    with pytest.raises(KeyError), transaction.atomic():
        assert not send("orders", b"1", dedup_key="a7").duplicate
        raise KeyError
    assert not send("orders", b"2", dedup_key="a7").duplicate
    assert bodies() == [b"2"]


def test_a_savepoint_that_is_rolled_back_frees_the_key():
    with transaction.atomic():
        with pytest.raises(KeyError), transaction.atomic():
            send("orders", b"1", dedup_key="a7")
            raise KeyError
        assert not send("orders", b"2", dedup_key="a7").duplicate
    assert bodies() == [b"2"]


def test_in_one_call_the_first_with_a_key_is_sent():
    send("orders", b"0", dedup_key="old")
    results = send_many(
        [
            Outgoing("orders", b"1", dedup_key="a7"),
            Outgoing("orders", b"2"),
            Outgoing("orders", b"3", dedup_key="a7"),
            Outgoing("orders", b"4", dedup_key="old"),
            Outgoing("bills", b"5", dedup_key="a7"),
        ]
    )
    assert [result.duplicate for result in results] == [False, False, True, True, False]
    assert results[2].message_id == results[0].message_id
    assert bodies() == [b"0", b"1", b"2", b"5"]
    ids = list(Message.objects.order_by("id").values_list("id", flat=True))
    assert [r.message_id for r in results] == [ids[1], ids[2], ids[1], ids[0], ids[3]]


@pytest.mark.parametrize(
    "options",
    [
        {"dedup_key": ""},
        {"dedup_key": " a"},
        {"dedup_key": "x" * 256},
        {"dedup_key": 1.5},
        {"dedup_window": 5},
        {"dedup_key": "a", "dedup_window": 0},
        {"dedup_key": "a", "dedup_window": -1},
        {"dedup_key": "a", "dedup_window": float("nan")},
        {"dedup_key": "a", "dedup_window": True},
        {"dedup_key": "a", "dedup_window": "1h"},
        {"dedup_key": "a", "dedup_window": timedelta(days=367)},
    ],
    ids=str,
)
def test_a_bad_key_or_window_is_refused(options):
    with nothing_written(), pytest.raises(StreamsError, match=r"dedup|longer"):
        send("orders", 1, **options)


def test_of_twenty_at_once_whose_first_rolls_back_one_is_sent_without_a_deadlock(in_thread):
    holds, go_on = threading.Event(), threading.Event()
    send("orders", b"-")  # the topic is there

    def first():
        with pytest.raises(KeyError), transaction.atomic():
            assert not send("orders", b"0", dedup_key="a7").duplicate
            holds.set()
            go_on.wait(30)
            raise KeyError

    def later(n):
        def run():
            with transaction.atomic():
                return send("orders", str(n).encode(), dedup_key="a7").duplicate

        return run

    running = [in_thread(first)]
    assert holds.wait(30)
    running += [in_thread(later(n)) for n in range(1, CALLERS)]
    if connection.vendor == "mysql":
        _wait_for_lock_waits(CALLERS - 1)
    go_on.set()
    outcomes = [one.result(60) for one in running]
    assert sorted(outcomes[1:]) == [False] + [True] * (CALLERS - 2)
    assert len(bodies()) == 2


def test_callers_without_a_row_do_not_deadlock_either(in_thread):
    send("orders", b"-")

    def sends(key, start):
        start.wait(30)
        with transaction.atomic():
            return send("orders", b"1", dedup_key=key).duplicate

    for number in range(ROUNDS):  # in one of them all meet at the missing row
        start = threading.Barrier(CALLERS)
        callers = [in_thread(sends, f"a{number}", start) for _ in range(CALLERS)]
        outcomes = [one.result(60) for one in callers]
        assert sorted(outcomes) == [False] + [True] * (CALLERS - 1)
    assert len(bodies()) == 1 + ROUNDS


def test_producers_without_a_key_wait_for_nobody(second_connection):
    if connection.vendor == "sqlite":
        return  # one writer at a time is what SQLite is
    send("orders", b"-")
    other = second_connection()
    with transaction.atomic():
        send("orders", b"1", dedup_key="a7")
        with other.active():
            other.execute("SET SESSION innodb_lock_wait_timeout = 1")
            assert not send("orders", b"2").duplicate
            assert not send("orders", b"3", dedup_key="b8").duplicate


@pytest.mark.mysql
def test_a_send_of_unknown_outcome_can_be_repeated_with_its_key(proxied):
    send("orders", b"-")
    proxied.lose_reply_to(b"COMMIT")
    with pytest.raises(SendOutcomeUnknown):
        send("orders", b"1", dedup_key="a7")
    assert send("orders", b"1", dedup_key="a7").duplicate
    assert bodies() == [b"-", b"1"]


@pytest.mark.mysql
def test_a_key_that_was_purged_since_the_snapshot_is_free(isolation_level, second_connection):
    isolation_level("repeatable read")
    send("orders", b"1", dedup_key="a7")
    pass_time(timedelta(hours=2))
    other = second_connection()
    with transaction.atomic():
        assert DedupKey.objects.exists()  # the snapshot begins
        with other.active():
            assert sum(dedup_keys("default")) == 1
        assert not send("orders", b"2", dedup_key="a7").duplicate
    assert send("orders", b"3", dedup_key="a7").duplicate


@pytest.mark.mysql
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_new_key_waits_for_nobody_whatever_the_isolation(level, isolation_level, monkeypatch):
    monkeypatch.setitem(
        connection.settings_dict["OPTIONS"],
        "init_command",
        "SET SESSION innodb_lock_wait_timeout = 1",
    )
    isolation_level(level)
    send("orders", b"-")  # the topic is there
    with transaction.atomic():
        assert not send("orders", b"1", dedup_key="a7").duplicate
        assert send("orders", b"1", dedup_key="a7").duplicate
        assert not send("orders", b"1", dedup_key="b8").duplicate


@pytest.mark.mysql
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_key_that_is_purged_while_it_is_waited_for_is_free(
    in_transaction, level, isolation_level, in_thread
):
    isolation_level(level)
    send("orders", b"1", dedup_key="a7")
    pass_time(timedelta(hours=2))

    def late():
        with transaction.atomic() if in_transaction else nullcontext():
            return send("orders", b"2", dedup_key="a7").duplicate

    with transaction.atomic():
        DedupKey.objects.all().delete()
        waiting = in_thread(late)
        _wait_for_lock_waits(1)
    assert waiting.result(20) is False
    assert send("orders", b"3", dedup_key="a7").duplicate
    assert bodies() == [b"1", b"2"]


def _wait_for_lock_waits(count: int) -> None:
    for _ in range(3000):
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
            if int(cursor.fetchone()[1]) >= count:
                return
    raise AssertionError("they do not wait")
