"""Invariant 1: a committed send is delivered to every group at least once, a rolled-back one never.

However long its transaction stays open, whatever dies, and whoever else sends meanwhile.
"""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from streams import Outgoing, ReceivedMessage, consumer, send, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Partition
from streams.testing import drain
from tests.hostapp.models import Handled, Order

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

# Two groups in a process of their own; what they get is a row of Handled each.
CONSUME = """
from django.core.management import call_command
from streams import consumer
from tests.hostapp.models import Handled

def note(messages):
    Handled.objects.bulk_create(
        Handled(group=m.group, topic=m.topic, partition=m.partition, offset=m.offset, value=m.body)
        for m in messages
    )

for group in ("mail", "stock"):
    consumer("orders", group=group, batch=50)(note)
call_command("ems_consume", "--start", "earliest", "--drain")
"""


class RolledBack(Exception):
    pass


class Groups:
    """Handlers of two groups in this process, and what they have seen, in order."""

    def __init__(self, topic="orders"):
        self.seen: dict[str, list[object]] = {"mail": [], "stock": []}
        for group, seen in self.seen.items():
            consumer(topic, group=group, batch=500)(self._handler(seen))

    @staticmethod
    def _handler(seen):
        def handle(messages):
            seen.extend(message.body for message in messages)

        return handle

    def __eq__(self, bodies):
        return all(seen == bodies for seen in self.seen.values())

    def __repr__(self):
        return repr(self.seen)

    __hash__ = None  # type: ignore[assignment]  # it changes


@pytest.fixture
def groups():
    return Groups()


def handled(group):
    rows = Handled.objects.filter(group=group).order_by("id")
    return [row.value for row in rows]


def offsets(topic="orders"):
    rows = Message.objects.filter(partition__topic__name=topic).order_by("offset")
    return list(rows.values_list("offset", flat=True))


def test_each_group_gets_what_is_committed_and_nothing_else(groups):
    with transaction.atomic():
        send("orders", 0)
        Order.objects.create(number="1")
    with pytest.raises(RolledBack), transaction.atomic():
        send("orders", "rolled back")
        send_many([Outgoing("orders", "rolled back")] * 600)
        raise RolledBack
    with transaction.atomic():
        send("orders", "rolled back")
        transaction.set_rollback(True)
    send("orders", 1)
    drain()
    assert groups == [0, 1]
    assert offsets() == [0, 1]


def test_a_savepoint_takes_back_only_its_own_sends(groups):
    with transaction.atomic():
        send("orders", 0)
        with pytest.raises(RolledBack), transaction.atomic():
            send("orders", "rolled back")
            with transaction.atomic():
                send_many([Outgoing("orders", "rolled back")])
            raise RolledBack
        with transaction.atomic():
            send("orders", 1)
        sid = connection.savepoint()
        assert sid
        send("orders", "rolled back")
        connection.savepoint_rollback(sid)
        send("orders", 2)
    drain()
    assert groups == [0, 1, 2]
    assert offsets() == [0, 1, 2]


def test_within_a_transaction_the_order_of_sending_is_kept(groups):
    with transaction.atomic():
        for n in range(0, 30, 3):
            send("orders", n)
            send_many([Outgoing("orders", n + 1), Outgoing("orders", n + 2)])
    drain()
    assert groups == list(range(30))


def test_a_group_that_comes_later_gets_all_of_it(groups):
    send_many([Outgoing("orders", n) for n in range(20)])
    drain()
    late: list[ReceivedMessage] = []
    consumer("orders", group="late")(late.append)
    send("orders", 20)
    drain()
    assert [message.body for message in late] == list(range(21))
    assert groups == list(range(21))


def test_a_send_to_several_topics_is_one_with_its_transaction(groups):
    bills = Groups("bills")
    with transaction.atomic():
        send_many([Outgoing("orders", 1), Outgoing("bills", 2)])
    with pytest.raises(RolledBack), transaction.atomic():
        send_many([Outgoing("orders", 3), Outgoing("bills", 4)])
        raise RolledBack
    drain()
    assert groups == [1]
    assert bills == [2]


def test_what_a_handler_sends_is_sent_and_what_it_rolls_back_is_not():
    @consumer("orders", group="mail")
    def handle(message):
        with transaction.atomic():
            send("mails", message.body)
        with pytest.raises(RolledBack), transaction.atomic():
            send("mails", "rolled back")
            raise RolledBack

    mails = Groups("mails")
    send("orders", 1)
    drain()
    assert mails == [1]


@pytest.mark.mysql
def test_a_transaction_open_while_thousands_of_later_ones_are_done_is_delivered(
    groups, second_connection
):
    send("orders", "first")
    late = second_connection()
    with late.active():
        transaction.set_autocommit(False)
        send("orders", "late")
        send_many([Outgoing("orders", "late too")])
    for start in range(0, 4000, 1000):
        send_many([Outgoing("orders", n) for n in range(start, start + 1000)])
        drain()
    assert groups == ["first", *range(4000)]
    with late.active():
        transaction.commit()
    drain()
    assert groups == ["first", *range(4000), "late", "late too"]
    assert offsets() == list(range(4003))
    drain()
    assert groups == ["first", *range(4000), "late", "late too"]


@pytest.mark.mysql
def test_open_transactions_that_end_in_another_order_are_all_delivered(groups, second_connection):
    sessions = [second_connection() for _ in range(6)]
    for n, session in enumerate(sessions):
        with session.active():
            transaction.set_autocommit(False)
            send("orders", n)
        drain()
    expected = []
    for n in (3, 5, 0, 4, 1, 2):
        with sessions[n].active():
            if n in (4, 1):
                transaction.rollback()
            else:
                transaction.commit()
                expected.append(n)
        drain()
        assert groups == expected
    assert offsets() == [0, 1, 2, 3]
    assert Partition.objects.get().next_offset == 4


@pytest.mark.mysql
def test_a_host_at_repeatable_read_loses_nothing_either(groups, second_connection, isolation_level):
    isolation_level("repeatable read")
    late = second_connection()
    with late.active():
        transaction.set_autocommit(False)
        assert not Order.objects.exists()  # the snapshot begins
        send("orders", "late")
    for n in range(3):
        send("orders", n)
        drain()
    with late.active():
        send("orders", "later")
        transaction.commit()
    drain()
    assert groups == [0, 1, 2, "late", "later"]


@pytest.mark.mysql
@pytest.mark.slow
def test_consumer_processes_get_what_was_open_while_they_ran(spawn, second_connection):
    late = second_connection()
    with late.active():
        transaction.set_autocommit(False)
        send("orders", "late")
    send_many([Outgoing("orders", str(n)) for n in range(500)])
    with pytest.raises(RolledBack), transaction.atomic():
        send("orders", "rolled back")
        raise RolledBack
    spawn(CONSUME).succeed()
    expected = [str(n) for n in range(500)]
    assert sorted(handled("mail")) == sorted(handled("stock")) == sorted(expected)
    with late.active():
        transaction.commit()
    spawn(CONSUME).succeed()
    expected.append("late")
    assert sorted(handled("mail")) == sorted(handled("stock")) == sorted(expected)


@pytest.mark.slow
def test_consumer_processes_get_every_message_once_and_no_rolled_back_one(spawn):
    send_many([Outgoing("orders", str(n)) for n in range(100)])
    with pytest.raises(RolledBack), transaction.atomic():
        send("orders", "rolled back")
        raise RolledBack
    for child in [spawn(CONSUME) for _ in range(2)]:
        child.succeed()
    expected = sorted(str(n) for n in range(100))
    assert sorted(handled("mail")) == sorted(handled("stock")) == expected


SEND_AND_STOP = """
import sys, time
from django.db import transaction
from streams import Outgoing, send, send_many
from tests.hostapp.models import Order

def stop(at):
    if at == sys.argv[1]:
        print("here")
        time.sleep(600)

with transaction.atomic():
    Order.objects.create(number="1")
    send("orders", 0)
    send_many([Outgoing("orders", n) for n in range(1, 700)])
    stop("before the commit")
stop("after the commit")
"""


@pytest.mark.parametrize(("at", "count"), [("before the commit", 0), ("after the commit", 700)])
def test_a_killed_producer_has_sent_what_it_has_committed(groups, spawn, at, count):
    child = spawn(SEND_AND_STOP, at)
    child.expect("here")
    child.kill()
    assert Order.objects.count() == bool(count)
    drain()
    assert groups == list(range(count))
    assert offsets() == list(range(count))
    assert sequence("default").sequenced == 0
