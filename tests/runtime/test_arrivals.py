"""What was sent just now is sequenced and claimed by one worker, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError

from streams import Outgoing, ReceivedMessage, consumer, send, send_many
from streams.conf import settings
from streams.deliver.poller import FEW
from streams.log import sequencer
from streams.models import ConsumerGroup, Cursor, Delivery, Kind, Message, Partition, State
from streams.operate.topics import create
from streams.process import arrivals as arrivals_module
from streams.process.pool import Wanted
from tests.consuming import Process
from tests.faults import Once, Recorder, Severed, statements
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def calls() -> list[ReceivedMessage]:
    return []


@pytest.fixture
def process(calls: list[ReceivedMessage]) -> Process:
    consumer("orders", group="mail")(calls.append)
    return resting(Process("mail"))


@pytest.fixture
def woken(process: Process) -> list[bool]:
    """What is added each time the poller is woken."""
    woken: list[bool] = []
    process.runtime.arrivals.wake_poller = lambda: woken.append(True)
    return woken


def resting(process: Process) -> Process:
    """Let the group have nothing to do, and two threads that rest."""
    wanted = process.pool.take()
    assert wanted
    process.pool.give_back(wanted.feed, again=False)
    process.pool._idle = 2
    return process


def called(process: Process, topic: str = "orders") -> Wanted:
    """Wake the process for a message of the topic; return what its worker is called for."""
    process.runtime.arrivals.wake({topic})
    wanted = process.pool.take()
    assert wanted
    assert wanted.call
    return wanted


def served(process: Process, wanted: Wanted) -> bool:
    """Let the worker do what it is called for; return whether there may be more."""
    more, _delay = process.worker._serve(process.worker.turn_in(wanted.feed), wanted)
    process.pool.give_back(wanted.feed, again=more)
    return more


def test_a_worker_sequences_claims_and_handles_what_was_sent(
    process: Process, calls: list[ReceivedMessage], woken: list[bool]
) -> None:
    send("orders", "new")
    assert not served(process, called(process))
    assert [message.body for message in calls] == ["new"]
    assert Partition.objects.get().next_offset == 1
    assert Delivery.objects.get().state == State.DONE
    assert not woken


def test_it_takes_seven_statements_of_one_transaction(process: Process) -> None:
    process.feed.limits()
    send("orders", 1)
    served(process, called(process))
    send("orders", 2)
    wanted = called(process)
    with statements(recorder := Recorder()):
        served(process, wanted)
    # SQLite begins by a statement; a new connection has settings, and is asked for its server.
    begin = "BEGIN", "SET", "SHOW"
    seen = [text for text in recorder.seen if not text.startswith(begin)]
    claimed = next(place for place, text in enumerate(seen) if "START" in text)
    tables = ["ems_partition", "ems_msg", "ems_msg", "ems_partition", "ems_cursor", "ems_cursor"]
    for text, table in zip(seen[:claimed], tables, strict=True):
        assert table in text


def test_while_one_worker_is_called_no_other_one_is(
    process: Process, calls: list[ReceivedMessage], woken: list[bool]
) -> None:
    send("orders", 1)
    wanted = called(process)
    process.runtime.arrivals.wake({"orders"})
    assert process.pool.take() is None
    served(process, wanted)
    # What was sent meanwhile has not been lost: the next one is called for it.
    again = process.pool.take()
    assert again
    assert again.call
    assert not woken


def test_a_worker_that_does_something_else_leaves_it_to_the_poller(
    process: Process, woken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals_module, "PATIENCE_SECONDS", 0.0)
    process.runtime.arrivals.wake({"orders"})
    process.runtime.arrivals.wake({"orders"})
    assert woken


def test_without_an_idle_worker_the_poller_is_woken(process: Process, woken: list[bool]) -> None:
    process.pool._idle = 0
    process.runtime.arrivals.wake({"orders"})
    assert woken


def test_a_wake_up_for_all_topics_wakes_the_poller(process: Process, woken: list[bool]) -> None:
    process.runtime.arrivals.wake(frozenset())
    assert woken
    assert process.pool.take() is None


def test_a_worker_that_may_not_claim_leaves_it_to_the_poller(
    process: Process, woken: list[bool]
) -> None:
    """Other groups, of other processes, wait for the offsets of what was sent."""
    ConsumerGroup.objects.update(paused=True)
    process.feed._fresh_until = 0.0
    send("orders", 1)
    process.runtime.arrivals.wake({"orders"})
    process.worker.step()
    assert woken
    assert not process.runtime.arrivals._called


def test_a_worker_whose_turn_fails_leaves_it_to_the_poller(
    process: Process, woken: list[bool]
) -> None:
    def fail(_work: object) -> None:
        raise OperationalError(2013, "Lost connection to server during query")

    process.runtime.arrivals.wake({"orders"})
    with statements(Once("`ems_cursor`", fail)):
        process.worker.step()
    assert woken
    assert not process.runtime.arrivals._called


def test_what_is_sent_during_a_look_is_claimed_after_it(
    process: Process, woken: list[bool]
) -> None:
    arrivals = process.runtime.arrivals
    with arrivals.left_to_poller():
        arrivals.wake({"orders"})
        assert process.pool.take() is None
    wanted = process.pool.take()
    assert wanted
    assert wanted.call
    assert not woken


def test_many_messages_are_left_to_the_poller_until_they_are_few(
    process: Process, woken: list[bool]
) -> None:
    arrivals = process.runtime.arrivals
    send_many([Outgoing("orders", n) for n in range(FEW + 1)])
    served(process, called(process))
    arrivals.wake({"orders"})
    assert woken
    process.poller.step()  # finds nothing
    assert called(process).call


def test_what_is_left_is_claimed_by_the_next_turn(
    process: Process, calls: list[ReceivedMessage]
) -> None:
    send_many([Outgoing("orders", n) for n in range(3)])
    process.turn._turns.claimer.pace.each = 60.0  # seconds: one message is claimed at a time
    assert served(process, called(process))
    assert len(calls) == 1
    process.run_until_idle()
    assert [message.body for message in calls] == [0, 1, 2]


def test_the_other_groups_of_the_topic_are_woken(calls: list[ReceivedMessage]) -> None:
    consumer("orders", group="mail")(calls.append)
    process = resting(Process("mail"))
    process.pool._shares[process.feed].woken = False
    consumer("orders", group="stock")(calls.append)
    other = Process("stock").feed
    process.pool.feeds = [*process.pool.feeds, other]
    share = type(process.pool._shares[process.feed])(other, woken=False)
    process.pool._shares[other] = share
    send("orders", 1)
    served(process, called(process))
    assert share.woken


def test_each_partition_that_has_something_gets_its_pass(calls: list[ReceivedMessage]) -> None:
    create("orders", 3, "default")
    consumer("orders", group="mail")(calls.append)
    process = resting(Process("mail"))
    for number in range(3):
        send("orders", number, partition=number)
    wanted: Wanted | None = called(process)
    for _turn in range(3):
        assert wanted
        served(process, wanted)
        wanted = process.pool.take()
    assert sorted(message.body for message in calls) == [0, 1, 2]


def test_messages_for_later_are_left_to_the_poller(
    process: Process, calls: list[ReceivedMessage]
) -> None:
    send("orders", "later", delay=timedelta(milliseconds=1))
    time.sleep(0.01)  # it is due then, by the clock of the server
    send("orders", "now")
    served(process, called(process))
    assert [message.body for message in calls] == ["now"]


def test_an_ordered_group_waits_for_its_message(calls: list[ReceivedMessage]) -> None:
    consumer("orders", group="mail", ordered=True)(calls.append)
    process = resting(Process("mail"))
    send("orders", 1)
    claimer = process.turn._turns.claimer
    (row,) = process.runtime.arrivals._cursors.of(process.feed.group.pk)
    held = claimer.claim_sent(row, 1, timedelta(minutes=1))
    assert held
    assert Cursor.objects.get().open_delivery == held.pk
    send("orders", 2)
    assert claimer.claim_sent(row, 1, timedelta(minutes=1)) is None
    assert claimer.sent.sequenced == 1


def test_a_claim_that_fails_undoes_the_offsets(process: Process) -> None:
    def fail(_work: object) -> None:
        raise OperationalError(1213, "Deadlock found when trying to get lock")

    send("orders", 1)
    (row,) = process.runtime.arrivals._cursors.of(process.feed.group.pk)
    claimer = process.turn._turns.claimer
    with statements(Once("INSERT INTO `ems_topic_group_log`", fail)):
        assert claimer.claim_sent(row, 1, timedelta(minutes=1)) is None
    assert claimer.sent.busy  # the poller is to look
    assert Message.objects.get().offset is None
    assert Partition.objects.get().next_offset == Cursor.objects.get().next_offset == 0
    assert not Delivery.objects.exists()


def test_a_damaged_partition_is_left_alone(process: Process, woken: list[bool]) -> None:
    send("orders", 1)
    partition = Partition.objects.get()
    sequencer._damaged["default", partition.pk] = time.monotonic() + 30
    try:
        served(process, called(process))
    finally:
        sequencer._damaged.clear()
    assert Partition.objects.get().next_offset == 0
    assert woken


def test_after_wake_ups_the_poller_looks_less_often(process: Process, woken: list[bool]) -> None:
    """Who is told what is sent needs no quick looks for it, which disturb the workers."""
    paused: list[float] = []
    for _look in range(2):
        send("orders", 1)
        process.runtime.arrivals.wake({"other"})
        paused.append(process.poller.step())
    send("orders", 1)
    process.runtime.arrivals._heard_at = time.monotonic() - settings().POLL_SECONDS
    assert process.poller.step() < paused[0] < paused[1]
    assert Delivery.objects.filter(kind=Kind.NEW).count() == 0


@pytest.mark.mysql
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("point", range(1, 9))
def test_whatever_is_lost_each_offset_is_claimed_once(
    process: Process, point: int, done: bool, second_connection: Callable[[], Session]
) -> None:
    """The last one is the COMMIT. If only its reply is lost, the claim is found and adopted."""
    process.poller.step()  # the name of the server is known
    send("orders", 1)
    (row,) = process.runtime.arrivals._cursors.of(process.feed.group.pk)
    claimer = process.turn._turns.claimer
    with Severed(point, second_connection(), done=done) as severed:
        taken = claimer.claim_sent(row, 1, timedelta(minutes=1))
    assert severed.fired
    assert (taken is not None) is (done and point == 8)
    sequencer.sequence("default")
    taken = taken or claimer.claim(1, timedelta(minutes=1))
    assert taken
    assert list(taken.offsets) == [0]
    assert Delivery.objects.count() == Partition.objects.get().next_offset == 1
    assert claimer.claim(1, timedelta(minutes=1)) is None


def test_a_claim_says_whether_the_group_has_more(calls: list[ReceivedMessage]) -> None:
    create("orders", 2, "default")
    consumer("orders", group="mail")(calls.append)
    claimer = Process("mail").turn._turns.claimer
    for number in range(2):
        send("orders", number, partition=number)
    sequencer.sequence("default")
    assert claimer.claim(1, timedelta(minutes=1))
    assert claimer.more
    assert claimer.claim(1, timedelta(minutes=1))
    sequencer.sequence("default")
    claimer._known_until = 0.0  # what it knew from its last look says nothing of what came later
    send("orders", "new", partition=0)
    sequencer.sequence("default")
    assert claimer.claim(1, timedelta(minutes=1))
    assert not claimer.more


def test_who_has_claimed_all_looks_no_more(process: Process) -> None:
    """It is woken when there is more; a look would be three statements for nothing."""
    send("orders", 1)
    sequencer.sequence("default")
    process.pool.wake(process.feed)
    wanted = process.pool.take()
    assert wanted
    assert wanted.more
    assert not served(process, wanted)
