"""Invariants 4 and 6: every delivery ends, whoever dies, freezes or hangs; and nobody waits for
user code.

Time is moved in the rows. Several Process objects in one test are several processes.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, transaction
from django.db.models import F

from streams import Outgoing, Retry, consumer, send, send_many
from streams.conf import LEASE_SECONDS
from streams.consume.outcome.expire import expire
from streams.consume.outcome.settle import settle
from streams.database.transactions import short_lock_waits
from streams.models import (
    Consumer,
    Cursor,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    State,
    Step,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.models.step import SWEEP
from streams.observe.audit.walk import audit
from streams.process.shared import in_flight
from streams.steps import sweep as sweep_module
from streams.steps.sweep import sweep, sweep_if_due
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, given_back, rows
from tests.faults import Once, statements
from tests.hostapp.models import Handled, Order
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def abandoned(count=1, **options):
    """A process that has claimed ``count`` messages and does nothing any more."""
    consumer("orders", group="mail", **options)(print)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(count)])
    process.poller.step()
    delivery = process.claim(count, timedelta(seconds=60))
    assert delivery.last_offset == count - 1
    return process, Delivery.objects.get()


def abandoned_again(**options):
    """The same, at the second attempt; the process of the first one has died."""
    process, _delivery = abandoned(**options)
    Consumer.objects.all().delete()
    assert sweep("default") == 1
    advance(timedelta(minutes=1))
    process.client.register()
    delivery, _row = process.claim_retry()
    delivery.start(timedelta(seconds=60))
    return process


def move(**by):
    """Let time pass for leases (lease=…) and deadlines (deadline=…), in seconds."""
    if "lease" in by:
        later = F("lease_until") - timedelta(seconds=by["lease"])
        Consumer.objects.update(lease_until=later)
    if "deadline" in by:
        Delivery.objects.update(deadline=F("deadline") - timedelta(seconds=by["deadline"]))


# -- the sweep ---------------------------------------------------------------------------------


def test_a_delivery_in_time_of_a_live_client_is_left_alone():
    abandoned()
    before = rows(Delivery, RetryMessage)
    move(lease=14, deadline=59)
    assert sweep("default") == 0
    assert rows(Delivery, RetryMessage) == [
        {**row, "deadline": Delivery.objects.get().deadline} for row in before
    ]


def test_an_overdue_delivery_becomes_retries_due_at_the_first_step_of_the_ladder():
    _process, delivery = abandoned(count=3)
    move(deadline=61)
    assert sweep("default") == 1
    delivery.refresh_from_db()
    assert (delivery.state, delivery.token) == (State.RETRY, "")
    assert delivery.finished_at
    assert "ProcessDied" in delivery.error
    waiting = RetryMessage.objects.order_by("offset")
    assert [(r.offset, r.attempt, r.delivery_id) for r in waiting] == [
        (0, 2, None),
        (1, 2, None),
        (2, 2, None),
    ]
    assert not waiting.filter(due_at__lt=UtcNow(timedelta(seconds=7))).exists()
    assert not waiting.filter(due_at__gt=UtcNow(timedelta(seconds=12))).exists()
    assert audit("default") == []


def test_a_delivery_of_a_dead_client_is_taken_long_before_its_deadline():
    abandoned_again()
    move(lease=16)
    assert sweep("default") == 1
    assert RetryMessage.objects.get().alone


def test_a_delivery_of_a_client_that_has_left_is_taken():
    abandoned()
    Consumer.objects.all().delete()
    assert sweep("default") == 1


def test_a_crash_that_is_found_by_its_deadline_makes_the_message_run_alone_too():
    """With a consume_timeout below the lease the deadline passes first."""
    abandoned_again(consume_timeout=5)
    Delivery.objects.open().update(deadline=UtcNow(timedelta(seconds=-1)))
    move(lease=8)  # the last renewal was 8 s ago, before the deadline: it lived until then only
    assert Consumer.objects.live().exists()
    assert sweep("default") == 1
    assert RetryMessage.objects.get().alone


def test_an_overdue_call_of_a_process_that_lives_does_not_make_the_message_run_alone():
    process = abandoned_again()
    move(deadline=61)
    assert process.client.renew()
    assert sweep("default") == 1
    assert not RetryMessage.objects.get().alone


def test_what_was_settled_before_the_crash_is_not_repeated():
    _process, delivery = abandoned(count=3)
    settle(delivery, 2, max_retries=16)
    move(lease=16)
    sweep("default")
    assert [r.offset for r in RetryMessage.objects.all()] == [2]
    assert audit("default") == []


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_settled_while_the_sweep_comes_to_it_is_not_repeated(monkeypatch, ordered):
    """A process that was frozen past its lease records what it had done, after the sweep's look."""
    _process, delivery = abandoned(count=3, ordered=ordered)
    move(lease=16)

    def late(found, *arguments):
        monkeypatch.undo()
        settle(delivery, 2, max_retries=16)
        return expire(found, *arguments)

    monkeypatch.setattr(sweep_module, "expire", late)
    assert sweep("default") == 0
    assert Delivery.objects.get().state == State.START
    assert sweep("default") == 1
    waiting = Cursor.objects if ordered else RetryMessage.objects
    column = "next_offset" if ordered else "offset"
    assert list(waiting.values_list(column, flat=True)) == [2]
    assert audit("default") == []


def test_what_is_renewed_while_the_sweep_comes_to_it_is_left_alone(monkeypatch):
    """A process that was frozen goes on, after the sweep's look."""
    _process, delivery = abandoned()
    move(deadline=61)

    def late(found, *arguments):
        assert delivery.extend(timedelta(seconds=60))
        return expire(found, *arguments)

    monkeypatch.setattr(sweep_module, "expire", late)
    assert sweep("default") == 0
    assert Delivery.objects.get().state == State.START
    assert not RetryMessage.objects.exists()


def test_a_retry_that_was_claimed_but_never_started_keeps_its_attempt():
    process, _delivery = abandoned()
    move(lease=16)
    sweep("default")
    advance(timedelta(seconds=11))
    process.client.register()
    claimed, row = process.claim_retry(timedelta(seconds=60))
    assert (claimed.attempt, row.attempt) == (2, 2)
    move(lease=16)
    assert sweep("default") == 1
    row = RetryMessage.objects.get()
    assert (row.attempt, row.delivery_id) == (2, None)


def test_a_retry_that_was_started_has_spent_its_attempt():
    process, _delivery = abandoned()
    move(lease=16)
    sweep("default")
    advance(timedelta(seconds=11))
    process.client.register()
    claimed, _row = process.claim_retry(timedelta(seconds=60))
    claimed.start(timedelta(seconds=60))
    move(lease=16)
    assert sweep("default") == 1
    assert RetryMessage.objects.get().attempt == 3


def test_two_sweeps_at_once_take_a_delivery_once(in_thread):
    abandoned(count=3)
    move(lease=16)
    barrier = threading.Barrier(4)

    def sweep_together():
        barrier.wait(10)
        return sweep("default")

    sweeps = [in_thread(sweep_together) for _ in range(4)]
    assert sum(future.result(30) for future in sweeps) == 1
    assert RetryMessage.objects.count() == 3
    assert set(RetryMessage.objects.values_list("attempt", flat=True)) == {2}


@pytest.mark.mysql
def test_a_frozen_process_that_holds_a_row_does_not_keep_the_sweep_from_the_others(
    second_connection, caplog
):
    process, delivery = abandoned(count=1)
    send("orders", 1)
    process.poller.step()
    process.claim(1, timedelta(seconds=60))
    move(lease=16)
    frozen = second_connection()
    with frozen.active(), transaction.atomic():
        list(Delivery.objects.select_for_update().filter(pk=delivery.pk))
        with second_connection().active():
            assert sweep("default") == 1
            assert "locked" not in caplog.text  # it was passed over, and not waited for
    assert sweep("default") == 1


@pytest.mark.mysql
def test_a_locked_retry_keeps_neither_the_sweep_nor_the_leases_from_ending(second_connection):
    process, first = abandoned(count=1)
    RetryMessage.objects.create(
        group=first.group, partition=first.partition, offset=first.first_offset, due_at=UtcNow()
    )
    for _ in range(2):
        send("orders", 1)
        process.poller.step()
        process.claim(1, timedelta(seconds=60))
    sweep_if_due("default")  # the first of all: it gives nobody a grace
    Delivery.objects.filter(pk=first.pk).update(deadline=UtcNow(-timedelta(hours=1)))
    move(lease=16)
    Step.objects.update(last_run_at=F("last_run_at") - timedelta(seconds=6))
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        list(RetryMessage.objects.select_for_update())
    assert sweep_if_due("default") == 2
    with other.active():
        transaction.rollback()
    Step.objects.update(last_run_at=F("last_run_at") - timedelta(seconds=6))
    assert sweep_if_due("default") == 1
    assert audit("default") == []


def test_of_all_processes_one_sweeps_every_five_seconds():
    abandoned()
    assert sweep_if_due("default") == 0  # the first of all: it wins, and finds nothing expired
    move(lease=16)
    assert sweep_if_due("default") == 0  # too early
    Step.objects.update(last_run_at=F("last_run_at") - timedelta(seconds=6))
    assert sweep_if_due("default") == 1


def test_after_an_outage_everyone_gets_one_lease_to_come_back():
    process, delivery = abandoned()
    sweep_if_due("default")
    advance(LONG_AFTER)
    Step.objects.filter(name=SWEEP).update(last_run_at=F("last_run_at") - LONG_AFTER)
    assert sweep_if_due("default") == 0
    assert sweep("default") == 0  # nothing is expired any more
    assert process.client.renew()  # who lives goes on as if nothing had been
    settle(delivery, 1, max_retries=16)
    assert audit("default") == []


def test_after_an_outage_who_does_not_come_back_is_swept():
    _process, _delivery = abandoned()
    sweep_if_due("default")
    advance(LONG_AFTER)
    Step.objects.filter(name=SWEEP).update(last_run_at=F("last_run_at") - LONG_AFTER)
    sweep_if_due("default")
    advance(LEASE + timedelta(seconds=1))
    Step.objects.update(last_run_at=F("last_run_at") - timedelta(seconds=6))
    assert sweep_if_due("default") == 1


@pytest.mark.parametrize(("seconds", "said"), [(20, 0), (61, 1)])
def test_an_outage_is_said_and_a_consumer_that_is_started_again_is_none(seconds, said, caplog):
    abandoned()
    sweep_if_due("default")
    silence = timedelta(seconds=seconds)
    advance(timedelta(minutes=2))  # the claim has expired
    Step.objects.filter(name=SWEEP).update(last_run_at=F("last_run_at") - silence)
    assert sweep_if_due("default") == 0
    assert sweep("default") == 0  # both extend the leases
    # What another test has left to say may come here.
    events = [one.ems_event for one in caplog.records]
    assert [one for one in events if one.startswith("sweep.")] == ["sweep.after_outage"] * said


def test_the_grace_after_an_outage_is_given_also_when_a_reply_is_lost():
    """Then of all times: the database has just come back."""
    abandoned()
    sweep_if_due("default")
    advance(LONG_AFTER)
    Step.objects.filter(name=SWEEP).update(last_run_at=F("last_run_at") - LONG_AFTER)

    def lose_reply(execute):
        execute()
        raise OperationalError(2013, "Lost connection to server during query")

    with statements(Once("UPDATE `ems_step`", lose_reply)):
        sweep_if_due("default")
    Step.objects.update(last_run_at=F("last_run_at") - timedelta(seconds=6))
    assert sweep_if_due("default") == 0


@pytest.mark.mysql
@pytest.mark.parametrize("model", [Delivery, Consumer])
def test_the_grace_after_an_outage_does_not_wait_for_a_locked_row(second_connection, model):
    """As a session holds one that the outage has left half-open."""
    process, first = abandoned()
    send("orders", 1)
    process.poller.step()
    second = process.claim(1, timedelta(seconds=60))
    other_client = Process("mail").client
    sweep_if_due("default")
    advance(LONG_AFTER)
    Step.objects.filter(name=SWEEP).update(last_run_at=F("last_run_at") - LONG_AFTER)
    half_open = second_connection()
    half_open.execute("BEGIN")
    table, pk = model._meta.db_table, model.objects.order_by("pk").values_list("pk", flat=True)[0]
    half_open.execute(f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", [pk])
    with short_lock_waits("default", 1):
        sweep_if_due("default")
        assert Step.objects.filter(name=SWEEP, last_run_at__gt=UtcNow(-LEASE)).exists()
        in_time = Delivery.objects.filter(deadline__gt=UtcNow()).values_list("pk", flat=True)
        assert set(in_time) == {first.pk, second.pk} - {pk if model is Delivery else None}
        assert other_client.renew()


def test_dead_clients_are_forgotten_and_live_ones_are_not():
    process, _delivery = abandoned()
    move(lease=31)
    live = Process("mail")
    sweep("default")
    assert [c.client_id for c in Consumer.objects.all()] == [live.client.client_id]
    assert not process.client.renew()


def test_a_retry_is_noted_as_started_before_its_handler_runs():
    """So that a crash in the handler spends the attempt."""
    started = []

    @consumer("orders", group="mail")
    def handle(message):
        started.append(Delivery.objects.get(state=State.START).started_at is not None)
        if message.attempt == 1:
            raise ValueError

    send("orders", 1)
    drain("mail")
    advance(timedelta(minutes=1))
    drain("mail")
    assert started == [False, True]  # new messages need no such statement: they spend it anyway


# -- late results ------------------------------------------------------------------------------


def test_the_late_result_of_a_slow_handler_changes_nothing():
    """Invariant 5, end to end: while the first holder is at it, the second one is done."""
    calls = []

    @consumer("orders", group="mail")
    def handle(message):
        calls.append(message.attempt)
        if message.attempt == 1:
            advance(LONG_AFTER)
            assert sweep("default") == 1
            advance(LONG_AFTER)
            second = Process("mail")
            assert second.worker.step() == 0.0
            calls.append(rows(Delivery, RetryMessage, Cursor))

    first = Process("mail")
    send("orders", 1)
    first.poller.step()
    assert first.worker.step() == 0.0
    assert calls[:2] == [1, 2]
    assert rows(Delivery, RetryMessage, Cursor) == calls[2]
    assert [d.state for d in Delivery.objects.order_by("id")] == [State.RETRY, State.DONE]
    assert not first.held.all()


@pytest.mark.mysql
@pytest.mark.parametrize("batch", [None, 5])
def test_what_a_slow_atomic_handler_wrote_is_rolled_back(second_connection, batch):
    after_second = []

    @consumer("orders", group="mail", atomic=True, batch=batch)
    def handle(messages):
        (message,) = messages if batch else (messages,)
        Order.objects.create(number=f"attempt {message.attempt}")
        if message.attempt == 1:
            with second_connection().active():
                advance(LONG_AFTER)
                assert sweep("default") == 1
                advance(LONG_AFTER)
                assert Process("mail").worker.step() == 0.0
                after_second.extend(rows(Delivery, RetryMessage, Cursor))

    first = Process("mail")
    send("orders", 1)
    first.poller.step()
    assert first.worker.step() == 0.0
    assert [order.number for order in Order.objects.all()] == ["attempt 2"]
    assert rows(Delivery, RetryMessage, Cursor) == after_second


FROZEN = """
import time
from streams import consumer
from streams.process.shared import client
from tests.hostapp.models import Handled
from django.core.management import call_command

client.LEASE_SECONDS = 2  # what the process itself believes in; the test moves the rows

@consumer("orders", group="mail", consume_timeout=2)
def handle(message):
    Handled.objects.create(group="child", topic="orders", partition=0, offset=message.offset,
                           value=message.attempt)
    if message.body == "freeze here":
        while not Handled.objects.filter(group="go").exists():
            time.sleep(0.01)

call_command("ems_consume", "--start", "earliest", "--threads", "1")
"""


@pytest.mark.slow
def test_a_process_that_was_frozen_past_its_lease_drops_everything_and_goes_on(spawn):
    @consumer("orders", group="mail")
    def other(message):
        Handled.objects.create(
            group="other", topic="orders", partition=0, offset=message.offset, value=""
        )

    send("orders", "freeze here")
    send("orders", "behind it")
    child = spawn(FROZEN)
    by_child = Handled.objects.filter(group="child")
    wait_for(by_child.exists)
    frozen_id = Consumer.objects.get().client_id
    child.freeze()
    frozen_at = time.monotonic()
    advance(LONG_AFTER)
    assert sweep("default") == 1
    advance(LONG_AFTER)
    assert drain("mail").done == 2
    after_other = rows(Delivery, RetryMessage, Cursor)
    Handled.objects.create(group="go", topic="", partition=0, offset=0, value="")
    wait_for(lambda: time.monotonic() - frozen_at > 2.1)
    child.thaw()
    new_id = wait_for(
        lambda: Consumer.objects.live().exclude(client_id=frozen_id).values_list("client_id")
    )[0][0]
    child.expect("lost a lease")
    assert rows(Delivery, RetryMessage, Cursor) == after_other
    assert [h.offset for h in by_child] == [0]  # what it had not begun, it did not begin

    send("orders", "next")
    wait_for(lambda: by_child.filter(offset=2))
    wait_for(lambda: not Delivery.objects.open().exists())
    assert Delivery.objects.get(first_offset=2, state=State.DONE).client_id == new_id
    child.terminate()
    child.succeed()
    assert audit("default") == []


# -- heartbeats --------------------------------------------------------------------------------

SLOW = """
import time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

@consumer("orders", group="mail", ordered=True, consume_timeout=2)
def handle(message):
    Handled.objects.create(group="mail", topic="orders", partition=0, offset=message.offset,
                           value="")
    time.sleep(1.2)

call_command("ems_consume", "--start", "earliest", "--threads", "1", "--drain")
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_batch_whose_calls_are_each_in_time_never_expires(spawn):
    send_many([Outgoing("orders", n) for n in range(4)])
    child = spawn(SLOW)
    while child.process.poll() is None:
        assert sweep("default") == 0
        time.sleep(0.05)
    child.succeed()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.progress) == (State.DONE, 4)
    assert Handled.objects.count() == 4


def test_a_heartbeat_gives_a_running_call_what_is_left_of_its_time():
    beats = []

    @consumer("orders", group="mail", consume_timeout=30)
    def handle(message):
        Delivery.objects.update(deadline=UtcNow(timedelta(seconds=1)))
        beats.append(process.heartbeat.step())
        deadlines = Delivery.objects.filter(deadline__gt=UtcNow(timedelta(seconds=28)))
        beats.append(deadlines.filter(deadline__lt=UtcNow(timedelta(seconds=30.1))).exists())

    process = Process("mail")
    send("orders", 1)
    process.poller.step()
    process.worker.step()
    assert beats == [5.0, True]


def test_heartbeats_are_as_frequent_as_the_shortest_timeout_needs_them():
    consumer("orders", group="mail", consume_timeout=2)(print)
    assert Process("mail").heartbeat.step() == 0.5


def test_a_heartbeat_follows_a_timeout_that_an_admin_has_shortened():
    consumer("orders", group="mail", consume_timeout=60)(print)
    process = Process("mail")
    process.feed.group.consume_timeout = 2
    process.feed.group.save()
    process = Process("mail")
    process.worker.step()
    assert process.heartbeat.step() == 0.5


def test_a_hung_call_is_not_extended_and_its_message_goes_to_another():
    taken: list[int] = []

    @consumer("orders", group="mail", consume_timeout=0.2)
    def handle(message):
        if message.attempt == 1:
            time.sleep(0.25)
            process.heartbeat.step()
            taken.append(sweep("default"))

    process = Process("mail")
    send("orders", 1)
    process.poller.step()
    process.worker.step()
    assert taken == [1]
    row = RetryMessage.objects.get()
    assert (row.attempt, row.delivery_id) == (2, None)
    assert not process.lifecycle.stopping  # overdue, but not by the grace


def test_a_call_that_is_overdue_by_the_grace_stops_the_process(monkeypatch):
    monkeypatch.setattr(in_flight, "HUNG_GRACE", timedelta(seconds=0.1))

    @consumer("orders", group="mail", consume_timeout=0.1)
    def handle(message):
        time.sleep(0.25)
        process.heartbeat.step()

    process = Process("mail")
    send("orders", 1)
    process.poller.step()
    process.worker.step()
    assert process.lifecycle.stopping
    assert "hangs" in (process.lifecycle.failure or "")


def test_a_missed_renewal_means_a_new_id_and_all_that_is_held_is_dropped():
    calls = []

    @consumer("orders", group="mail")
    def handle(message):
        calls.append(message.offset)
        move(lease=16)
        process.heartbeat.step()

    process = Process("mail")
    first_id = process.client.client_id
    send_many([Outgoing("orders", n) for n in range(3)])
    process.poller.step()
    process.worker.step()
    assert calls == [0]
    assert process.client.client_id != first_id
    assert process.client.alive
    live = Consumer.objects.live().values_list("client_id", flat=True)
    assert list(live) == [process.client.client_id]
    assert audit("default") == []
    # The token was still its own, so what it had done counts and the rest was given back.
    assert given_back() == [(1, 2)]


def test_a_process_without_a_lease_claims_nothing():
    consumer("orders", group="mail")(print)
    process = Process("mail")
    send("orders", 1)
    process.poller.step()
    process.client.deregister()
    assert process.worker.step() > 0
    assert not Delivery.objects.exists()


NEW, RETRY = "SELECT c.`id`, c.`partition_id`", "SELECT 1 FROM `ems_retry_msg`"
START = "UPDATE `ems_topic_group_log` SET `started_at`"


@pytest.mark.parametrize(
    ("ordered", "late"),
    [(False, NEW), (True, NEW), ("key", NEW), (False, RETRY), (False, START), (True, START)],
)
def test_what_is_claimed_under_an_id_whose_lease_has_ended_is_given_back(ordered, late):
    """A statement has waited out an outage, and the heartbeat was the first to come back."""
    calls: list[Any] = []
    expired: list[Delivery] = []

    @consumer("orders", group="mail", ordered=ordered, max_retries=int(late == RETRY))
    def handle(message):
        if late == RETRY and message.attempt == 1:
            raise Retry(delay=0)
        calls.append((message.offset, message.attempt))
        expired.extend(Delivery.objects.expired())

    process = Process("mail")
    first_id = process.client.client_id
    send("orders", 1)
    process.poller.step()
    if late == RETRY:
        process.worker.step()

    def away(execute):
        move(lease=16)
        process.heartbeat.step()
        return execute()

    with statements(Once(late, away)):
        process.worker.step()
    assert process.client.client_id != first_id
    assert process.client.alive
    assert calls == []
    process.run_until_idle()
    assert calls == [(0, 1 + (late == RETRY))]
    assert expired == []
    assert audit("default") == []


@pytest.mark.parametrize("verb", ["register", "renew"])
def test_a_process_takes_no_lease_for_longer_than_a_dead_one_is_waited_for(monkeypatch, verb):
    """And never believes in it for longer than the database does."""
    consumer("orders", group="mail")(print)
    client = Process("mail").client
    getattr(client, verb)()
    answered = time.monotonic()
    mine = Consumer.objects.filter(client_id=client.client_id)
    assert not mine.filter(lease_until__gt=UtcNow(LEASE)).exists()
    assert client.alive
    monkeypatch.setattr(time, "monotonic", lambda: answered + LEASE_SECONDS)
    assert not client.alive


# -- no lock while user code runs --------------------------------------------------------------


@pytest.mark.mysql
@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
def test_user_code_runs_while_ems_holds_no_lock(second_connection, atomic):
    """With atomic=True the handler's own delivery may be locked, and nothing else."""
    lockable: list[Any] = [Cursor, RetryMessage, Partition, Message, Consumer]
    seen, locked = [], []

    @consumer("orders", group="mail", atomic=atomic)
    def handle(message):
        with second_connection().active(), transaction.atomic():
            for model in lockable if atomic else [*lockable, Delivery]:
                try:
                    found = list(model.objects.select_for_update(nowait=True))
                except DatabaseError:
                    locked.append(model.__name__)
                    continue
                seen.append((message.offset, message.attempt, model.__name__, len(found)))
        if message.attempt == 1:
            raise ValueError

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(2)])
    process.poller.step()
    process.run_until_idle()
    advance(timedelta(minutes=1))
    process.client.register()
    process.run_until_idle()
    assert locked == []
    assert not RetryMessage.objects.exists()
    assert {(offset, attempt) for offset, attempt, _model, _n in seen} == {
        (0, 1),
        (1, 1),
        (0, 2),
        (1, 2),
    }
    assert max(n for *_, model, n in seen if model == "RetryMessage") == 2


def test_other_connections_write_while_a_plain_handler_runs(second_connection):
    @consumer("orders", group="mail")
    def handle(message):
        with second_connection().active():
            Delivery.objects.update(thread="seen")
            send("orders-copied", message.body)

    send("orders", 1)
    assert drain("mail").done == 1
    assert Delivery.objects.get().thread == "seen"
    assert Message.objects.filter(partition__topic__name="orders-copied").count() == 1
