"""Steps of a worker, on a real database."""

from __future__ import annotations

import math
import threading
from datetime import timedelta

import pytest
from django.db import OperationalError, ProgrammingError, connection

from streams import Outgoing, consumer, send, send_many
from streams.deliver import reading
from streams.deliver.handling import Handling
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, Kind, RetryMessage, State
from streams.models.retry import Again
from streams.process import worker as workers
from streams.process.pool import LOOK_SECONDS
from streams.process.shared.connections import KEEPER_PREFIX
from tests.consuming import MINUTE, Process
from tests.faults import Once, statements
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def calls():
    return []


@pytest.fixture
def process(calls):
    consumer("orders", group="mail")(calls.append)
    return Process("mail")


def test_a_step_that_found_nothing_asks_to_wait(process):
    assert process.worker.step() == LOOK_SECONDS


def test_a_step_that_found_something_asks_for_the_next_one(process, calls):
    send("orders", 1)
    sequence("default")
    assert process.worker.step() == 0.0
    assert len(calls) == 1
    assert process.worker.step() > 0


def test_a_step_claims_for_the_client_as_it_is_now(process):
    process.client.register()
    send("orders", 1)
    sequence("default")
    process.worker.step()
    assert Delivery.objects.get().client_id == process.client.client_id
    assert Delivery.objects.get().thread == "worker-0"


@pytest.mark.parametrize("left", [False, True])
def test_a_claim_that_leaves_something_wakes_the_next_worker(process, left):
    process.forget_wake_up()
    send("orders", 1)
    if left:
        process.turn._turns.claimer.pace.each = 60.0  # seconds: one message is claimed at a time
        send("orders", 2)
    sequence("default")
    process.worker.step()
    assert process.woken is left


def test_a_worker_that_stops_claims_nothing(process):
    send("orders", 1)
    sequence("default")
    process.lifecycle.stop()
    assert process.worker.step() > 0
    assert not Delivery.objects.exists()


def test_what_is_handled_is_held_and_then_let_go():
    seen = []

    @consumer("orders", group="mail")
    def handle(message):
        seen.append([h.delivery.pk for h in busy.held.all() if isinstance(h, Handling)])

    busy = Process("mail")
    send("orders", 1)
    sequence("default")
    busy.worker.step()
    assert seen == [[Delivery.objects.get().pk]]
    assert busy.held.all() == []


@pytest.mark.parametrize(
    "error",
    [
        OperationalError(2006, "Server has gone away"),
        OperationalError(1053, "Server shutdown in progress"),
        OperationalError(1290, "running with the --read-only option"),
        OperationalError(4094, "blocked while group_replication_set_as_primary() is executing"),
    ],
    ids=lambda error: str(error.args[0]),
)
def test_a_database_that_is_away_is_waited_for(process, error, monkeypatch):
    def fail(timeout):
        raise error

    monkeypatch.setattr(process.turn._turns.claimer, "claim_retry", fail)
    assert process.worker.step() == workers.AFTER_ERROR_SECONDS


def test_an_error_that_is_a_bug_is_raised(process):
    def fail(execute):
        raise ProgrammingError(1146, "Table 'ems_cursor' doesn't exist")

    send("orders", 1)
    sequence("default")
    with statements(Once("`ems_cursor`", fail)), pytest.raises(ProgrammingError):
        process.worker.step()


def test_a_worker_thread_that_fails_stops_the_process(process):
    def fail(execute):
        raise ProgrammingError(1146, "Table 'ems_cursor' doesn't exist")

    with statements(Once("`ems_cursor`", fail)):
        process.worker.start()
        process.worker.join(30)
    assert "worker-0" in process.lifecycle.failure


def wait_until_wanted_alone(process):
    wait_for(lambda: process.feed.gate.wanted_alone, "somebody wants to be alone")


def suspects(process, *offsets):
    """Retries of messages whose process has died: they run alone."""
    group, place = process.feed.group.pk, process.feed.group.cursors.get().partition_id
    rows = [Again(offset, 2, alone=True) for offset in offsets]
    RetryMessage.objects.schedule(group, place, rows)


def test_a_message_whose_process_died_runs_with_nothing_beside_it(in_thread):
    running, beside = set(), {}
    begun, go_on = threading.Event(), threading.Event()

    @consumer("orders", group="mail", batch=1)
    def handle(messages):
        offset = messages[0].offset
        running.add(offset)
        begun.set()
        if offset == 0:
            go_on.wait(10)
        beside[offset] = set(running) - {offset}
        running.remove(offset)

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(2)])
    sequence("default")
    first = in_thread(process.worker.step)
    assert begun.wait(10)
    suspects(process, 1)
    alone = in_thread(process.new_worker(1).step)
    wait_until_wanted_alone(process)
    assert running == {0}
    go_on.set()
    first.result(30)
    alone.result(30)
    assert beside == {0: set(), 1: set()}


def test_a_claim_waits_for_a_call_that_runs_alone_and_gives_nothing_back(in_thread, calls):
    begun, go_on = threading.Event(), threading.Event()

    @consumer("orders", group="mail")
    def handle(message):
        calls.append((message.offset, message.attempt))
        if message.offset == 0:
            begun.set()
            go_on.wait(10)

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    first = in_thread(process.worker.step)
    assert begun.wait(10)
    suspects(process, 2)
    alone = in_thread(process.new_worker(1).step)
    wait_until_wanted_alone(process)
    go_on.set()
    first.result(30)
    alone.result(30)
    assert calls == [(0, 1), (2, 2), (1, 1), (2, 1)]
    states = Delivery.objects.order_by("id").values_list("kind", "state")
    assert list(states) == [(Kind.NEW, State.DONE), (Kind.RETRY, State.DONE)]


def test_another_group_does_not_wait_for_a_call_that_runs_alone(in_thread):
    running, go_on = threading.Event(), threading.Event()

    @consumer("orders", group="mail")
    def handle(message):
        running.set()
        go_on.wait(30)

    consumer("orders", group="bills")(print)
    process, other = Process("mail"), Process("bills")
    send("orders", 1)
    sequence("default")
    suspects(process, 0)
    alone = in_thread(process.worker.step)
    assert running.wait(10)
    assert other.worker.step() == 0.0
    assert Delivery.objects.get(group__name="bills").state == State.DONE
    go_on.set()
    alone.result(30)


def test_who_waits_to_run_alone_keeps_its_lease(in_thread):
    """Claimed, held by the heartbeat, and not begun: its attempt is unspent."""
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    suspects(process, 0)
    with process.feed.gate.together():
        waiting = in_thread(process.worker.step)
        wait_until_wanted_alone(process)
        Delivery.objects.update(deadline=Consumer.objects.get().started_at)
        process.heartbeat.step()
        delivery = Delivery.objects.get()
        assert delivery.started_at is None
        assert delivery.deadline > Consumer.objects.get().lease_until
    waiting.result(30)
    assert Delivery.objects.get().state == State.DONE


def test_who_waits_to_run_alone_gives_back_when_the_process_stops(in_thread):
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    suspects(process, 0)
    with process.feed.gate.together():
        waiting = in_thread(process.worker.step)
        wait_until_wanted_alone(process)
        process.lifecycle.stop()
    waiting.result(30)
    row = RetryMessage.objects.due().get()
    assert (row.attempt, row.alone) == (2, True)
    assert Delivery.objects.get().state == State.RELEASED


@pytest.mark.parametrize("at_once", [100, 10_000], ids=["large ones later", "all at once"])
def test_calls_are_limited_in_bytes_but_never_to_nothing(at_once, monkeypatch):
    monkeypatch.setattr(reading, "CLAIM_BYTES", 1000)
    monkeypatch.setattr(reading, "READ_BYTES", at_once)
    sizes = []

    @consumer("orders", group="mail", batch=10)
    def handle(messages):
        sizes.append([m.size for m in messages])

    process = Process("mail")
    send_many([Outgoing("orders", b"x" * size) for size in (400, 400, 400, 5000, 1, 1)])
    process.run_until_idle()
    assert sizes == [[400, 400], [400], [5000], [1, 1]]


def test_the_timeout_of_a_claim_is_its_lease():
    seen = []
    consumer("orders", group="mail", consume_timeout=90)(
        lambda message: seen.append(Delivery.objects.get())
    )
    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    lease = seen[0].deadline - seen[0].claimed_at
    assert timedelta(seconds=89.9) < lease < timedelta(seconds=91)


def looks(work, table):
    """Return how many statements of ``work`` are looks at ``table``."""
    seen = []

    def note(execute, sql, *arguments):
        seen.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(note):
        work()
    return sum(table in sql for sql in seen)


RETRY_LOOK = "FROM `ems_retry_msg`"
CURSOR_LOOK = "FROM `ems_cursor` c JOIN"


def test_while_a_group_is_behind_its_cursors_are_looked_for_once_in_a_while(process):
    send_many([Outgoing("orders", n) for n in range(45)])
    sequence("default")
    claimed: list[Delivery] = []
    assert looks(lambda: claimed.extend(process.claim() for _ in range(4)), CURSOR_LOOK) == 1
    process.turn._turns.claimer._known_until = 0.0  # a quarter of a second later
    assert looks(lambda: claimed.append(process.claim()), CURSOR_LOOK) == 1
    assert [delivery.first_offset for delivery in claimed] == [0, 10, 20, 30, 40]
    assert looks(lambda: process.turn._turns.claimer.claim(10, MINUTE), CURSOR_LOOK) == 1


def test_a_cursor_that_has_come_to_its_end_is_looked_for_again(process):
    """Otherwise each look of a group without a backlog would take a lock for nothing."""
    send("orders", 1)
    sequence("default")
    process.claim()
    send("orders", 2)
    sequence("default")
    claimed: list[Delivery] = []
    assert looks(lambda: claimed.append(process.claim()), CURSOR_LOOK) == 1
    assert claimed[0].first_offset == 1


def test_a_known_cursor_that_is_gone_does_not_hide_the_others(process):
    send_many([Outgoing("orders", n) for n in range(30)])
    sequence("default")
    process.claim()
    other = process.turn._turns.claimer._known[0]
    process.turn._turns.claimer._known[:] = [(other[0] + 1000, *other[1:])]
    assert process.claim().first_offset == 10


def test_retries_are_looked_for_once_in_a_while_and_when_nothing_is_new(process):
    send_many([Outgoing("orders", n) for n in range(25)])
    sequence("default")
    process.worker.step()
    assert looks(process.worker.step, RETRY_LOOK) == 0
    process.turn._turns.claimer._retries_at = 0.0  # a quarter of a second later
    assert looks(process.worker.step, RETRY_LOOK) == 1
    assert process.worker.step() > 0
    assert looks(process.worker.step, RETRY_LOOK) == 1


@pytest.mark.parametrize(("batch", "claims"), [(None, [1, 1]), (5, [5, 5])])
def test_where_there_are_no_retries_a_claim_is_one_call(batch, claims):
    """Whoever dies ends each message of the claim whose start it has written."""
    consumer("orders", group="mail", max_retries=0, batch=batch)(lambda messages: None)

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(100)])
    sequence("default")
    process.worker.step()
    process.turn._turns.claimer.pace.each = 1e-6
    process.worker.step()
    assert [len(row.offsets) for row in Delivery.objects.order_by("pk")] == claims


def test_a_turn_of_retries_takes_as_long_as_the_last_claim_of_new_messages():
    tried = []

    @consumer("orders", group="mail", retry=[1e-6])
    def mail(message):
        tried.append(message.attempt)
        if message.attempt == 1 and message.offset < 5:
            raise ValueError

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(1000)])
    sequence("default")
    process.worker.step()
    process.turn._turns.claimer.pace.each = 1e-6
    process.turn._turns.claimer._retries_at = math.inf
    process.worker.step()
    assert len(tried) > 20
    assert process.turn._turns.new_seconds > 0
    process.turn._turns.new_seconds = 60.0
    process.turn._turns.claimer._retries_at = 0.0
    del tried[:]
    for _ in range(5):
        process.worker.step()
    assert tried == [2] * 5


def test_a_resting_worker_gives_its_connection_to_a_keeper_that_has_none(process, in_thread):
    connection.ensure_connection()

    def heartbeat():
        threading.current_thread().name = f"{KEEPER_PREFIX}heartbeat"
        process.shortage.note(OperationalError(1040, "Too many connections"))

    in_thread(heartbeat).result(10)
    waited = []
    process.worker._pool.wait = lambda seconds: waited.append(seconds)
    process.worker._rest()
    assert connection.vendor == "sqlite" or connection.connection is None
    assert waited == [LOOK_SECONDS]


def test_a_lease_that_is_lost_stays_lost_until_the_sweep_has_run(process, monkeypatch):
    """A late heartbeat has a new client id: the next one finds the row as it was."""
    send("orders", 1)
    sequence("default")
    handling = Handling(process.claim(), process.feed.registration, process.feed.limits())
    replies = iter([False, True])
    monkeypatch.setattr(handling.delivery, "extend_unless_locked", lambda left: next(replies))
    handling.renew(MINUTE)
    handling.renew(MINUTE)
    assert handling.lost
