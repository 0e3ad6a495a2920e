"""Invariant 2: offsets are 0, 1, 2 … without hole or repeat, and a cause comes before its effect.

Whoever sequences, however many at once, and whatever happens to them in the middle of it.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, send, send_many
from streams.database.sql import sequence as sql
from streams.database.sql.dialect import execute, fetch
from streams.log import sequencer
from streams.log.sequencer import Pass, sequence
from streams.models import IMMEDIATE, Message, Partition, Topic
from streams.observe.audit.walk import audit
from streams.testing import advance
from tests.hostapp.models import Order
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 30


class RolledBack(Exception):
    pass


def log(topic="orders"):
    """The bodies in the order of their offsets, which must be dense from 0."""
    partition = Partition.objects.get(topic__name=topic)
    rows = Message.objects.filter(partition=partition).exclude(offset=None).order_by("offset")
    found = list(rows.values_list("offset", "body"))
    assert [offset for offset, _body in found] == list(range(partition.next_offset))
    return [bytes(body).decode() for _offset, body in found]


@contextmanager
def interrupted(monkeypatch, statement, action):
    """Do ``action`` each time the sequencer is about to run a statement that begins so."""

    def watch(run):
        def watched(using, text, parameters=()):
            if text.startswith(statement):
                action()
            return run(using, text, parameters)

        return watched

    with monkeypatch.context() as patch:
        patch.setattr(sequencer, "execute", watch(execute))
        patch.setattr(sequencer, "fetch", watch(fetch))
        yield


ASSIGN = "UPDATE `ems_msg`"
ADVANCE = "UPDATE `ems_partition`"


# --- dense ------------------------------------------------------------------------------------


def test_messages_get_dense_offsets_in_the_order_of_sending():
    for n in range(5):
        send("orders", n)
    assert set(Message.objects.values_list("offset", flat=True)) == {None}
    assert sequence("default") == Pass(5)
    assert log() == list("01234")
    send("orders", 5)
    assert sequence("default") == Pass(1)
    assert log() == list("012345")
    assert sequence("default") == Pass(0)


def test_every_topic_has_offsets_of_its_own():
    send_many([Outgoing("orders" if n % 3 else "bills", n) for n in range(9)])
    assert sequence("default").sequenced == 9
    assert log("bills") == list("036")
    assert log("orders") == list("124578")


def test_a_pass_of_many_chunks_leaves_no_gap_between_them():
    count = 2 * sequencer.CHUNK + 7
    send_many([Outgoing("orders", n) for n in range(count)])
    assert sequence("default").sequenced == count
    assert log() == [str(n) for n in range(count)]


def test_a_full_pass_says_that_there_is_more(monkeypatch):
    monkeypatch.setattr(sequencer, "IMMEDIATE_PER_PASS", 3)
    send_many([Outgoing("orders", n) for n in range(7)])
    assert [sequence("default") for _ in range(4)] == [
        Pass(3, more=True),
        Pass(3, more=True),
        Pass(1),
        Pass(0),
    ]
    assert log() == list("0123456")


def test_an_idle_pass_is_two_short_reads_and_no_lock():
    send("orders", 1)
    send("later", 1, delay=3600)
    sequence("default")
    with CaptureQueriesContext(connection) as captured:
        assert sequence("default") == Pass(0)
    assert len(captured) <= 2
    for query in captured:
        assert query["sql"].startswith("SELECT")
        assert "FOR UPDATE" not in query["sql"]


@pytest.mark.mysql
def test_a_message_that_leaves_between_read_and_update_leaves_no_hole(
    monkeypatch, second_connection
):
    """As a cancel does that commits in between."""
    send_many([Outgoing("orders", n) for n in range(6)])
    doomed = list(Message.objects.order_by("id"))[2]
    other = second_connection()
    other.execute("SET SESSION innodb_lock_wait_timeout = 2")  # if it had to wait, it fails soon
    with interrupted(
        monkeypatch,
        ASSIGN,
        lambda: other.execute("DELETE FROM ems_msg WHERE id = %s", [doomed.pk]),
    ):
        assert sequence("default").sequenced == 5
    assert log() == list("01345")


def test_messages_that_have_an_offset_never_get_another():
    send("orders", 0)
    sequence("default")
    ids = list(Message.objects.values_list("id", flat=True))
    vendor = connection.vendor
    changed = execute("default", sql.assign_offsets(vendor, ids, 7), ["2026-01-01 00:00:00"])
    assert changed == 0
    assert log() == ["0"]


# --- at once ----------------------------------------------------------------------------------


def test_passes_at_the_same_time_give_each_offset_once(in_thread):
    count = 1500
    start = threading.Barrier(4)
    send_many([Outgoing("orders", n) for n in range(count)])

    def run():
        start.wait(PATIENCE_SECONDS)
        return sequence("default").sequenced

    passes = [in_thread(run) for _ in range(4)]
    done = sum(future.result(60) for future in passes)
    # Who found the partition locked went away: a last look, as a busy sequencer takes.
    done += sequence("default").sequenced
    assert done == count
    assert log() == [str(n) for n in range(count)]


SEQUENCE = """
from streams.log.sequencer import sequence
from tests.hostapp.models import Order
print("ready")
while not Order.objects.exists():
    sequence("default")
"""


@pytest.mark.slow
def test_processes_at_the_same_time_give_each_offset_once(spawn):
    children = [spawn(SEQUENCE) for _ in range(2)]
    send("orders", 0)
    for child in children:
        child.expect("ready")
    for n in range(1, 200):
        send("orders", n)
    wait_for(lambda: Partition.objects.get().next_offset == 200, "sequencing")
    Order.objects.create(number="stop")
    for child in children:
        child.succeed()
    assert log() == [str(n) for n in range(200)]


@pytest.mark.mysql
def test_who_finds_a_partition_locked_says_so_and_does_not_wait(second_connection):
    send("orders", 1)
    send("bills", 2)
    other = second_connection()
    other.connection.set_autocommit(False)
    (topic,) = Topic.objects.filter(name="orders")
    other.execute("SELECT id FROM ems_partition WHERE topic_id = %s FOR UPDATE", [topic.pk])
    assert sequence("default") == Pass(1, busy=True)
    assert log("bills") == ["2"]
    assert log() == []
    other.connection.rollback()
    assert sequence("default") == Pass(1)
    assert log() == ["1"]


@pytest.mark.mysql
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_producers_do_not_wait_for_a_pass(
    level, isolation_level, monkeypatch, in_thread, second_connection
):
    isolation_level(level)
    send_many([Outgoing("orders", n) for n in range(10)])
    send("orders", "soon", delay=0.001)
    wait_for(lambda: Message.objects.filter(due_at__gt=IMMEDIATE, due_at__lt=clock()).exists())
    middle, go_on = threading.Event(), threading.Event()

    def hold():
        middle.set()
        assert go_on.wait(PATIENCE_SECONDS)

    with interrupted(monkeypatch, ADVANCE, hold):
        running = in_thread(sequence, "default")
        assert middle.wait(PATIENCE_SECONDS)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
            send("orders", "meanwhile")
            send_many([Outgoing("orders", "meanwhile")] * 3)
            send("orders", "meanwhile", delay=3600)
            with transaction.atomic():
                send("orders", "meanwhile")
        finally:
            go_on.set()
        assert running.result(PATIENCE_SECONDS) == Pass(11)
    connection.close()  # and with it the short timeout
    assert sequence("default") == Pass(5)
    assert len(log()) == 16


def clock():
    return datetime.now(UTC)


# --- in the middle ----------------------------------------------------------------------------


@pytest.mark.parametrize("statement", [ASSIGN, ADVANCE])
def test_a_pass_that_fails_in_the_middle_leaves_nothing(statement, monkeypatch):
    count = sequencer.CHUNK + 10
    send_many([Outgoing("orders", n) for n in range(count)])
    seen = []

    def fail_at_the_last():
        seen.append(1)
        if statement == ADVANCE or len(seen) == 2:
            raise RolledBack

    with interrupted(monkeypatch, statement, fail_at_the_last), pytest.raises(RolledBack):
        sequence("default")
    assert not Message.objects.exclude(offset=None).exists()
    assert Partition.objects.get().next_offset == 0
    assert sequence("default").sequenced == count
    assert log() == [str(n) for n in range(count)]


STOP_IN_THE_MIDDLE = """
import sys, time
from streams.log import sequencer

execute = sequencer.execute
statements = []

def stop(using, text, parameters=()):
    statements.append(text)
    if text.startswith(sys.argv[1]) and len(statements) > 1:
        print("here")
        time.sleep(600)
    return execute(using, text, parameters)

sequencer.execute = stop
sequencer.sequence("default")
"""


@pytest.mark.parametrize("statement", [ASSIGN, ADVANCE])
def test_a_sequencer_killed_in_the_middle_leaves_nothing(statement, spawn):
    count = sequencer.CHUNK + 10
    send_many([Outgoing("orders", n) for n in range(count)])
    child = spawn(STOP_IN_THE_MIDDLE, statement)
    child.expect("here")
    assert not Message.objects.exclude(offset=None).exists()
    child.kill()
    # The server may need a moment to notice that the holder of the lock is gone.
    assert wait_for(lambda: sequence("default").sequenced, "sequencing") == count
    assert log() == [str(n) for n in range(count)]


@pytest.mark.mysql
@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "never arrived"])
def test_a_commit_with_unknown_outcome_neither_repeats_nor_skips_an_offset(lost, proxied):
    send_many([Outgoing("orders", n) for n in range(20)])
    (proxied.lose_reply_to if lost else proxied.cut_before)(b"COMMIT")
    sequence("default")
    assert proxied.fired == [b"COMMIT"]
    sequence("default")
    send("orders", 20)
    sequence("default")
    assert log() == [str(n) for n in range(21)]


@pytest.mark.mysql
def test_a_pass_survives_a_deadlock_and_a_lock_wait(monkeypatch):
    send_many([Outgoing("orders", n) for n in range(3)])
    errors = [
        OperationalError(1213, "Deadlock found"),
        OperationalError(1205, "Lock wait timeout exceeded"),
    ]

    def fail():
        if errors:
            raise errors.pop()

    with interrupted(monkeypatch, ADVANCE, fail):
        assert sequence("default").sequenced == 3
    assert not errors
    assert log() == list("012")


# --- cause and effect -------------------------------------------------------------------------


@pytest.mark.mysql
def test_an_effect_never_overtakes_a_cause_whose_row_is_locked(second_connection, in_thread):
    """The read of the inbox must be a plain one: with SKIP LOCKED it would see only the effect."""
    cause = send("orders", "cause")
    other = second_connection()
    other.connection.set_autocommit(False)
    other.execute("SELECT id FROM ems_msg WHERE id = %s FOR UPDATE", [cause.message_id])
    send("orders", "effect")
    running = in_thread(sequence, "default")
    wait_for(lambda: running.done() or waiting_for(ASSIGN), "the pass")
    other.connection.rollback()
    running.result(PATIENCE_SECONDS)
    sequence("default")
    assert log() == ["cause", "effect"]


def waiting_for(statement):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT info FROM information_schema.processlist WHERE db = DATABASE()"
            " AND id <> CONNECTION_ID()"
        )
        return any(statement in str(info) for (info,) in cursor.fetchall())


@pytest.mark.mysql
def test_a_message_that_commits_after_the_read_is_left_to_the_next_pass(
    second_connection, monkeypatch
):
    late = second_connection()
    with late.active():
        transaction.set_autocommit(False)
        send("orders", "late")
    send("orders", 1)
    with interrupted(monkeypatch, ASSIGN, late.connection.commit):
        assert sequence("default") == Pass(1)
    assert sequence("default") == Pass(1)
    assert log() == ["1", "late"]


class Workload:
    """Producers that send, hold their transactions open, and roll one in five back."""

    def __init__(self, seed, turns):
        self.seed = seed
        self.turns = turns
        self.committed = {}  # body: (when its send began, when its commit was known)
        self.rolled_back = set()

    def produce(self, producer, start):
        dice = random.Random(f"{self.seed} {producer}")  # noqa: S311 - it must be repeatable
        start.wait(PATIENCE_SECONDS)
        for turn in range(self.turns):
            began: dict[str, float] = {}
            try:
                if dice.random() < 0.4:
                    self.send(dice, began, f"{producer} {turn}")
                else:
                    with transaction.atomic():
                        for n in range(dice.randint(1, 3)):
                            self.send(dice, began, f"{producer} {turn} {n}")
                        time.sleep(dice.choice([0, 0, 0.005, 0.03]))  # a late commit
                        if dice.random() < 1 / 3:
                            raise RolledBack
            except RolledBack:
                self.rolled_back.update(began)
                continue
            known = time.monotonic()
            self.committed.update({body: (at, known) for body, at in began.items()})

    @staticmethod
    def send(dice, began, body):
        bodies = [f"{body} {n}" for n in range(dice.choice([1, 1, 3]))]
        began.update(dict.fromkeys(bodies, time.monotonic()))
        if len(bodies) == 1:
            send("orders", bodies[0])
        else:
            send_many([Outgoing("orders", one) for one in bodies])


@pytest.mark.parametrize("seed", [1, 2])
def test_under_late_commits_and_rollbacks_offsets_are_dense_and_causal(seed, in_thread, vendor):
    workload = Workload(seed, turns=10 if vendor == "sqlite" else 40)
    start = threading.Barrier(6)
    finished = threading.Event()

    def keep_sequencing():
        passes = 0
        while not finished.is_set():
            passes += sequence("default").sequenced > 0
        return passes

    send("orders", "first")
    sequencers = [in_thread(keep_sequencing) for _ in range(3)]
    producers = [in_thread(workload.produce, n, start) for n in range(6)]
    try:
        for producer in producers:
            producer.result(90)
    finally:
        finished.set()
    passes = sum(sequencer.result(30) for sequencer in sequencers)
    sequence("default")

    first, *order = log()  # dense
    assert first == "first"
    assert len(order) == len(set(order))
    assert set(order) == set(workload.committed)
    assert workload.rolled_back
    assert passes  # it was not all sequenced at the end
    # From the end: nothing that stands behind a message was committed before that one began.
    earliest_commit_behind = float("inf")
    for body in reversed(order):
        began, known = workload.committed[body]
        assert earliest_commit_behind >= began
        earliest_commit_behind = min(earliest_commit_behind, known)
    assert audit("default") == []


@pytest.mark.mysql
def test_a_host_at_repeatable_read_sequences_what_commits_late(second_connection, isolation_level):
    isolation_level("repeatable read")
    late = second_connection()
    with late.active():
        transaction.set_autocommit(False)
        send("orders", "late")
    send("orders", 1)
    assert sequence("default") == Pass(1)
    with late.active():
        transaction.commit()
    assert sequence("default") == Pass(1)
    assert log() == ["1", "late"]


# --- delayed ----------------------------------------------------------------------------------


def test_delayed_messages_come_when_they_are_due_and_in_that_order():
    for body, minutes in (("c", 30), ("a", 10), ("d", 30), ("b", 20)):
        send("orders", body, delay=timedelta(minutes=minutes))
    send_many([Outgoing("orders", "e", delay=1800), Outgoing("orders", "now")])
    assert sequence("default") == Pass(1)
    advance(timedelta(minutes=9))
    assert sequence("default") == Pass(0)
    advance(timedelta(minutes=2))
    assert sequence("default") == Pass(1)
    assert log() == ["now", "a"]
    advance(timedelta(hours=1))
    assert sequence("default") == Pass(4)
    # "e" and "c", "d" were sent within milliseconds: in that order all the same.
    assert log() == ["now", "a", "b", "c", "d", "e"]


def test_messages_due_at_the_same_instant_keep_the_order_of_sending():
    at = datetime.now(UTC) + timedelta(seconds=5)
    for n in range(5):
        send("orders", n, deliver_at=at)
    advance(timedelta(seconds=6))
    sequence("default")
    assert log() == list("01234")


def test_a_delay_passes_by_itself():
    result = send("orders", 1, delay=0.3)
    assert sequence("default") == Pass(0)
    wait_for(lambda: sequence("default").sequenced, "the delay")
    row = Message.objects.get(pk=result.message_id)
    assert row.sequenced_at >= row.due_at
    assert row.due_at > row.created_at


def test_a_time_in_the_past_is_sequenced_among_the_immediate_ones():
    send("orders", 0)
    send("orders", 1, deliver_at=datetime(2001, 1, 1, tzinfo=UTC))
    send("orders", 2)
    sequence("default")
    assert log() == list("012")


def test_a_prepared_message_is_not_sequenced():
    send("orders", 0)
    Message.objects.update(due_at=None)
    assert sequence("default") == Pass(0)
    assert log() == []


@pytest.mark.mysql
def test_a_delayed_message_that_somebody_holds_does_not_stop_the_partition(second_connection):
    held = send("orders", "held", delay=60)
    send("orders", "free", delay=61)
    send("orders", "now")
    advance(timedelta(minutes=2))
    other = second_connection()
    other.connection.set_autocommit(False)
    other.execute("UPDATE ems_msg SET tag = 'x' WHERE id = %s", [held.message_id])
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    assert sequence("default") == Pass(2)
    assert set(log()) == {"free", "now"}
    other.connection.rollback()
    assert sequence("default") == Pass(1)
    assert log()[-1] == "held"
    connection.close()


def test_neither_delayed_nor_immediate_messages_starve(monkeypatch):
    monkeypatch.setattr(sequencer, "DUE_PER_PASS", 2)
    monkeypatch.setattr(sequencer, "IMMEDIATE_PER_PASS", 3)
    send_many([Outgoing("orders", f"delayed {n}", delay=60) for n in range(5)])
    send_many([Outgoing("orders", f"immediate {n}") for n in range(7)])
    advance(timedelta(minutes=2))
    assert sequence("default") == Pass(5, more=True)
    assert {body.split()[0] for body in log()} == {"delayed", "immediate"}
    assert sequence("default") == Pass(5, more=True)
    assert sequence("default") == Pass(2)
    found = log()
    for kind, count in (("delayed", 5), ("immediate", 7)):
        mine = [body for body in found if body.startswith(kind)]
        assert mine == [f"{kind} {n}" for n in range(count)]


# --- time -------------------------------------------------------------------------------------


def test_each_pass_has_a_later_sequenced_at_also_when_the_clock_steps_back():
    send("orders", 0)
    sequence("default")
    ahead = datetime.now(UTC) + timedelta(hours=3)
    Partition.objects.update(last_sequenced_at=ahead)  # as if the clock had been three hours fast
    send("orders", 1)
    sequence("default")
    send("orders", 2)
    sequence("default")
    rows = Message.objects.order_by("offset")
    times = [row.sequenced_at for row in rows if row.sequenced_at]
    assert times[0] < ahead < times[1] < times[2] < ahead + timedelta(seconds=1)
    assert Partition.objects.get().last_sequenced_at == times[2]


@pytest.mark.parametrize(("use_tz", "zone"), [(True, "Asia/Shanghai"), (False, "America/New_York")])
def test_sequenced_at_is_utc_and_never_falls_in_any_zone(use_tz, zone, settings):
    """The MariaDB of the tests runs with +08:00 besides."""
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = zone
    before = datetime.now(UTC) - timedelta(seconds=2)
    for n in range(3):
        send("orders", n)
        sequence("default")
    after = datetime.now(UTC) + timedelta(seconds=2)
    rows = list(Message.objects.order_by("offset"))
    times = [row.sequenced_at for row in rows if row.sequenced_at]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= after
    assert all(row.created_at <= at for row, at in zip(rows, times, strict=True))
    assert Partition.objects.get().last_sequenced_at == times[-1]
