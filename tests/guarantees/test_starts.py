"""A new group never reads what a topic already holds, unless somebody says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.db.models import F

from streams import Outgoing, consumer, send, send_many
from streams.consume.registry import registrations
from streams.consume.subscription import subscribe
from streams.errors import InvalidConsumer, StartNeeded
from streams.log import sequencer
from streams.log.holdings import holdings
from streams.log.sequencer import Pass, sequence
from streams.models import ConsumerGroup, Cursor, Message, Partition, Topic
from streams.observe.audit.walk import audit
from streams.operate.topics import create
from tests.broadcasting import BroadcastProcess, offsets
from tests.consuming import Process, registered

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def register(**options):
    consumer("orders", group="mail", **options)(print)
    return registered("orders", "mail")


def places():
    cursors = Cursor.objects.order_by("partition__number")
    return list(cursors.values_list("next_offset", "start_offset"))


def old(messages):
    """Let these messages be three days old."""
    messages.update(created_at=F("created_at") - timedelta(days=3))


# -- what is history --------------------------------------------------------------------------


@pytest.mark.parametrize("sequenced", [True, False], ids=["in the log", "in the inbox"])
def test_a_new_group_of_a_topic_that_holds_messages_needs_a_start(sequenced):
    send_many([Outgoing("orders", n) for n in range(1200)])
    if sequenced:
        sequence("default")
    old(Message.objects.all())
    with pytest.raises(StartNeeded) as raised:
        subscribe(register(), "default")
    for part in ("mail on orders", "1,200 messages", "3 d 0 h ago", "start=", "--start"):
        assert part in str(raised.value)
    assert not ConsumerGroup.objects.exists()
    assert not Cursor.objects.exists()


def test_a_full_inbox_is_not_counted_to_its_end(monkeypatch):
    monkeypatch.setattr("streams.log.holdings.INBOX_AT_MOST", 3)
    send_many([Outgoing("orders", n) for n in range(5)])
    with pytest.raises(StartNeeded, match="at least 3 messages"):
        subscribe(register(), "default")


def test_the_age_is_left_out_where_the_oldest_message_is_gone():
    send_many([Outgoing("orders", n) for n in range(2)])
    sequence("default")
    Message.objects.all().delete()  # as a TRUNCATE does
    with pytest.raises(StartNeeded, match=r"holds 2 messages\. Say"):
        subscribe(register(), "default")


def empty():
    Topic.objects.create(name="orders")


def purged():
    send("orders", 1)
    sequence("default")
    Partition.objects.update(first_offset=1)
    Message.objects.all().delete()


def delayed():
    send("orders", 1, delay=timedelta(days=1))


@pytest.mark.parametrize(
    ("topic", "place"), [(lambda: None, 0), (empty, 0), (purged, 1), (delayed, 0)]
)
def test_a_topic_that_holds_nothing_needs_no_start(topic, place):
    topic()
    subscribe(register(), "default")
    assert places() == [(place, place)]


def test_a_group_that_exists_is_not_asked_again_wherever_it_is_told_to_start():
    subscribe(register(), "default")
    send("orders", 1)
    sequence("default")
    subscribe(registered("orders", "mail"), "default")
    subscribe(registered("orders", "mail"), "default", "latest")
    assert places() == [(0, 0)]


def test_a_renamed_group_is_a_new_one():
    subscribe(register(), "default")
    send("orders", 1)
    consumer("orders", group="mails")(print)
    with pytest.raises(StartNeeded, match="mails"):
        subscribe(registered("orders", "mails"), "default")


# -- where it starts --------------------------------------------------------------------------


def test_the_command_line_is_stronger_than_the_decorator():
    send("orders", 1)
    subscribe(register(start="earliest"), "default", "latest")
    assert places() == [(1, 1)]
    assert ConsumerGroup.objects.get().start == "latest"


def test_a_start_at_a_time_is_the_first_message_that_came_then_or_later():
    create("orders", 2, "default")
    for partition in (0, 1):
        send_many([Outgoing("orders", n, partition=partition) for n in range(3)])
    sequence("default")
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    for offset in range(3):
        at = noon + timedelta(hours=offset)
        Message.objects.filter(offset=offset, partition__number=0).update(sequenced_at=at)
        Message.objects.filter(offset=offset, partition__number=1).update(sequenced_at=noon)
    begin = (noon + timedelta(hours=1)).astimezone(tz=None)
    subscribe(register(start=begin), "default")
    assert places() == [(1, 1), (3, 3)]
    assert ConsumerGroup.objects.get().start == "2026-11-20T13:00:00+00:00"
    assert audit("default") == []


@pytest.mark.parametrize("start", [datetime(2026, 11, 20), "2026-11-20T10:00Z", 7, timedelta(1)])  # noqa: DTZ001
def test_any_other_start_is_refused_at_decoration(start):
    with pytest.raises(InvalidConsumer, match="aware datetime"):
        register(start=start)


def test_latest_leaves_out_what_is_committed_and_not_sequenced(monkeypatch):
    """Nobody may have sequenced for days, because no consumer has run yet."""
    monkeypatch.setattr(sequencer, "IMMEDIATE_PER_PASS", 3)
    send_many([Outgoing("orders", n) for n in range(7)])
    subscribe(register(start="latest"), "default")
    assert places() == [(7, 7)]


def test_latest_leaves_out_what_is_committed_though_the_pass_before_found_it_held(monkeypatch):
    """Another process may hold the partition during the pass: then the locks decide."""
    monkeypatch.setattr(
        "streams.consume.subscription.sequence", lambda using, partitions: Pass(busy=True)
    )
    send_many([Outgoing("orders", n) for n in range(7)])
    subscribe(register(start="latest"), "default")
    assert places() == [(7, 7)]


@pytest.mark.mysql
def test_latest_gets_what_was_sent_before_and_is_committed_later(second_connection):
    handled = []
    consumer("orders", group="mail", start="latest")(lambda message: handled.append(message.body))
    send("orders", "committed before")
    sender = second_connection()
    with sender.active():
        transaction.set_autocommit(False)
        send("orders", "late")
    send("orders", "committed after that")
    process = Process("mail")
    with sender.active():
        transaction.commit()
    process.run_until_idle()
    assert handled == ["late"]
    assert audit("default") == []


@pytest.mark.mysql
def test_the_first_message_that_comes_after_the_look_is_read(monkeypatch, in_thread):
    """It is committed while the group is being created: it is new, and not lost."""
    from streams.consume import subscription

    Topic.objects.create(name="orders")
    handled = []
    consumer("orders", group="mail")(lambda message: handled.append(message.body))
    look = holdings

    def then_send(topic_id, using):
        found = look(topic_id, using)
        in_thread(send, "orders", "first").result(30)
        return found

    monkeypatch.setattr(subscription, "holdings", then_send)
    group = subscribe(registered("orders", "mail"), "default")
    assert places() == [(0, 0)]
    Process("mail").run_until_idle()
    assert handled == ["first"]
    assert group.start == "earliest"


def test_a_process_without_a_start_joins_the_group_that_another_one_creates_meanwhile(
    monkeypatch,
):
    """Two processes are started at once, and only one has --start."""
    from streams.consume import subscription

    send("orders", 1)
    register()
    find = subscription._find
    calls = []

    def then_create(topic_id, registration, using):
        calls.append(topic_id)
        found = find(topic_id, registration, using)
        if len(calls) == 1:
            subscribe(registration, using, "latest")
        return found

    monkeypatch.setattr(subscription, "_find", then_create)
    assert subscribe(registered("orders", "mail"), "default").start == "latest"
    assert places() == [(1, 1)]


# -- broadcast groups -------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path, ems_settings):
    ems_settings(STATE_DIR=str(tmp_path))
    running = []

    def start(**options):
        seen = []
        consumer("orders", group="cache", mode="broadcast", **options)(
            lambda message: seen.append(message.body)
        )
        running.append(BroadcastProcess("cache"))
        return running[-1], seen

    yield start
    for process in running:
        process.close()


def test_a_broadcast_group_needs_no_start_and_reads_no_history(client):
    send("orders", "old")
    process, seen = client()
    send("orders", "new")
    process.run_until_idle()
    assert seen == ["new"]


def test_a_client_of_a_broadcast_group_starts_at_a_time(client):
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    Message.objects.filter(offset__lt=2).update(sequenced_at=noon)
    process, seen = client(start=noon + timedelta(microseconds=1))
    assert offsets() == {0: 2}
    process.run_until_idle()
    assert seen == [2]


def test_the_command_line_does_not_tell_later_clients_where_to_start():
    send("orders", "old")
    consumer("orders", group="cache", mode="broadcast")(print)
    assert subscribe(registered("orders", "cache"), "default", "earliest").start == "latest"


# -- the process ------------------------------------------------------------------------------

APP = """
import sys
import django
django.setup()
from django.core.management import call_command
from streams import consumer

@consumer("orders", group="new")
def new(message):
    print("new", message.body, flush=True)

@consumer("others", group="old")
def old(message):
    print("old", message.body, flush=True)

call_command("ems_consume", "--drain", "--threads", "1", *sys.argv[1:])
"""


def test_ems_consume_leaves_the_group_out_and_runs_the_others(spawn):
    consumer("others", group="old")(print)
    (registration,) = registrations()
    subscribe(registration, "default")
    send("orders", 1)
    send("others", 2)
    child = spawn(APP)
    child.succeed()
    assert "old 2" in child.text()
    assert "new 1" not in child.text()
    assert "new on orders is left out: " in child.text()
    assert "1 message, the oldest sent" in child.text()
    child = spawn(APP, "--start", "earliest")
    child.succeed()
    assert "new 1" in child.text()


def test_ems_consume_with_no_group_that_can_run_exits_with_1(spawn):
    send("orders", 1)
    child = spawn(APP, "--group", "new")
    assert child.wait() == 1
    assert "CommandError: Group new on orders is new" in child.text()
    send("others", 2)
    child = spawn(APP)
    assert child.wait() == 1
    assert "CommandError: No group can run" in child.text()


@pytest.mark.parametrize("start", ["soon", "7", "+1", "2026-11-20T10:00"])
def test_another_start_is_refused_by_the_command(start, spawn):
    child = spawn(APP, "--start", start)
    assert child.wait() != 0
    assert "2026-11-20T10:00Z" in child.text() or "time zone" in child.text()
