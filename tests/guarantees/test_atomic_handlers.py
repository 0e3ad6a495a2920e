"""atomic=True: what the handler writes and the acknowledgement are one transaction, so it happens
exactly once.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.log.sequencer import sequence
from streams.models import DeadMessage, Delivery, Message, Partition, RetryMessage, State
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process
from tests.faults import Once, statements
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def numbers():
    return sorted(Order.objects.values_list("number", flat=True))


def test_the_acknowledgement_is_part_of_the_handlers_transaction(second_connection):
    seen = []

    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        assert connection.in_atomic_block
        Order.objects.create(number=message.body)
        with second_connection().active():
            seen.append((Order.objects.count(), Delivery.objects.get().progress))

    send_many([Outgoing("orders", f"{n}") for n in range(3)])
    assert drain("mail").done == 3
    assert numbers() == ["0", "1", "2"]
    # Each call commits by itself: the next one is seen to stand on it.
    assert seen == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("error", [ValueError(), Retry(delay=0), Reject("no"), SystemExit()])
def test_what_a_failing_handler_wrote_is_rolled_back_and_its_failure_is_not(error):
    @consumer("orders", group="mail", atomic=True, max_retries=1)
    def handle(message):
        Order.objects.create(number=f"{message.offset}, attempt {message.attempt}")
        if message.offset == 1 and message.attempt == 1:
            raise error

    send_many([Outgoing("orders", n) for n in range(3)])
    drain("mail")
    ended = Delivery.objects.order_by("id")[0]
    assert (ended.state, ended.failed, ended.progress) == (State.RETRY, 1, 3)
    advance(timedelta(minutes=1))
    drain("mail")
    expected = ["0, attempt 1", "2, attempt 1"]
    if isinstance(error, Reject):
        assert DeadMessage.objects.get().offset == 1
    else:
        expected.insert(1, "1, attempt 2")
    assert numbers() == expected
    assert audit("default") == []


def test_messages_sent_by_a_failing_handler_are_rolled_back_too():
    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        send("invoices", f"attempt {message.attempt}")
        if message.attempt == 1:
            raise ValueError

    send("orders", 1)
    drain("mail")
    advance(timedelta(minutes=1))
    drain("mail")
    invoices = Message.objects.filter(partition__topic__name="invoices")
    assert [bytes(m.body) for m in invoices] == [b"attempt 2"]


def test_a_batch_is_one_transaction():
    @consumer("orders", group="mail", batch=3, atomic=True)
    def handle(messages):
        for message in messages:
            Order.objects.create(number=f"{message.offset}, attempt {message.attempt}")
        if messages[0].attempt == 1:
            raise ValueError

    send_many([Outgoing("orders", n) for n in range(3)])
    assert drain("mail").failed == 3
    assert numbers() == []
    advance(timedelta(minutes=1))
    assert drain("mail").done == 3
    assert numbers() == ["0, attempt 2", "1, attempt 2", "2, attempt 2"]


def test_a_batch_that_fails_in_part_keeps_what_it_wrote_for_the_others():
    @consumer("orders", group="mail", batch=3, atomic=True)
    def handle(messages):
        good = [m for m in messages if m.attempt > 1 or m.offset != 1]
        for message in good:
            Order.objects.create(number=f"{message.offset}")
        return {m: ValueError() for m in messages if m not in good}

    send_many([Outgoing("orders", n) for n in range(3)])
    result = drain("mail")
    assert (result.done, result.failed) == (2, 1)
    assert numbers() == ["0", "2"]
    advance(timedelta(minutes=1))
    drain("mail")
    assert numbers() == ["0", "1", "2"]


def test_a_database_error_that_the_handler_swallows_fails_the_message():
    """Django has marked the transaction as broken: it cannot be committed."""

    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        Order.objects.create(number=f"attempt {message.attempt}")
        if message.attempt == 1:
            with suppress(IntegrityError):
                Order.objects.create(number="attempt 1")

    send("orders", 1)
    assert drain("mail").failed == 1
    assert numbers() == []
    advance(timedelta(minutes=1))
    assert drain("mail").done == 1
    assert numbers() == ["attempt 2"]


def test_a_savepoint_of_the_handler_may_fail_without_harm():
    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        Order.objects.create(number="kept")
        with pytest.raises(IntegrityError), transaction.atomic():
            Order.objects.create(number="kept")

    send("orders", 1)
    assert drain("mail").done == 1
    assert numbers() == ["kept"]


def test_on_commit_runs_after_the_acknowledgement():
    states = []

    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        transaction.on_commit(lambda: states.append(Delivery.objects.get().state))

    send("orders", 1)
    drain("mail")
    assert states == [State.DONE]


def test_a_callback_that_fails_after_the_commit_does_not_undo_the_acknowledgement():
    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        Order.objects.create(number=f"attempt {message.attempt}")
        transaction.on_commit(lambda: 1 / 0)

    process = Process("mail")
    send("orders", 1)
    sequence("default")
    assert process.worker.step() == 0.0
    assert Delivery.objects.get().state == State.DONE
    assert not RetryMessage.objects.exists()
    assert numbers() == ["attempt 1"]


def test_a_crash_repeats_only_the_call_that_was_not_committed():
    """progress moves in the transaction of each call."""

    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        Order.objects.create(number=f"{message.offset}")
        if message.offset == 1 and message.attempt == 1:
            raise KeyboardInterrupt  # nothing of EMS catches it: as good as a crash

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    with pytest.raises(KeyboardInterrupt):
        process.worker.step()
    assert numbers() == ["0"]
    assert Delivery.objects.open().get().progress == 1
    advance(LONG_AFTER)
    sweep("default")
    advance(LONG_AFTER)
    assert drain("mail").done == 2
    assert numbers() == ["0", "1", "2"]
    assert audit("default") == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_deadlock_at_the_acknowledgement_rolls_back_and_repeats_the_message(when):
    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        Order.objects.create(number=f"attempt {message.attempt}")

    def deadlock(execute):
        if when == "after":
            execute()
        raise OperationalError(1213, "Deadlock found when trying to get lock")

    send("orders", 1)
    with statements(Once("UPDATE `ems_topic_group_log`", deadlock)):
        assert drain("mail").failed == 1
    assert numbers() == []
    advance(timedelta(minutes=1))
    drain("mail")
    assert numbers() == ["attempt 2"]


def test_missing_bodies_before_between_and_after_are_counted_once():
    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        Order.objects.create(number=f"{message.offset}")

    send_many([Outgoing("orders", n) for n in range(7)])
    sequence("default")
    Message.objects.filter(offset__in=[0, 3, 6]).delete()
    assert drain("mail").done == 4
    advance(timedelta(minutes=1))
    result = drain("mail")
    assert (result.done, result.missing) == (0, 3)
    assert numbers() == ["1", "2", "4", "5"]
    assert not RetryMessage.objects.exists()
    assert not Delivery.objects.open().exists()


@pytest.mark.parametrize("batch", [None, 2])
def test_a_failure_beside_a_missing_body_counts_both(batch):
    @consumer("orders", group="mail", atomic=True, batch=batch)
    def handle(messages):
        raise ValueError

    Process("mail")
    send_many([Outgoing("orders", n) for n in range(2)])
    sequence("default")
    Partition.objects.update(first_offset=1)
    Message.objects.filter(offset=0).delete()
    result = drain("mail")
    assert (result.done, result.failed, result.missing) == (0, 1, 1)
    ended = Delivery.objects.get()
    assert (ended.failed, ended.missing) == (1, 1)
    assert [row.offset for row in RetryMessage.objects.all()] == [1]
    assert audit("default") == []
