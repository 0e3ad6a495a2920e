"""cancel(): a delayed message is taken back, or it is visible; never both, never neither."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection, transaction

from streams import StreamsError, cancel, consumer, send
from streams.log import sequencer
from streams.log.sequencer import sequence
from streams.models import DedupKey, Message
from streams.observe.audit.walk import audit
from streams.testing import advance, drain

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

HOUR = timedelta(hours=1)


@pytest.fixture
def seen() -> list[int]:
    bodies: list[int] = []
    consumer("orders", group="mail")(lambda message: bodies.append(message.body))
    return bodies


def test_a_delayed_message_is_taken_back(seen):
    kept, cancelled = (send("orders", n, delay=HOUR).message_id for n in (1, 2))
    assert cancel(cancelled) == "cancelled"
    assert cancel(cancelled) == "unknown"
    advance(HOUR)
    drain()
    assert seen == [1]
    assert cancel(kept) == "visible"
    assert audit("default") == []


def test_an_immediate_message_cannot_be_taken_back(seen):
    message = send("orders", 1).message_id
    assert cancel(message) == "visible"
    drain()
    assert seen == [1]


def test_one_that_is_due_can_be_taken_back_until_it_is_sequenced(seen):
    message = send("orders", 1, delay=HOUR).message_id
    advance(HOUR)
    assert cancel(message) == "cancelled"
    drain()
    assert seen == []


def test_an_id_that_never_was_is_unknown():
    assert cancel(12345) == "unknown"


@pytest.mark.parametrize("bad", ["1", None, 1.0, True])
def test_what_is_no_id_is_refused(bad):
    with pytest.raises(StreamsError, match="message_id"):
        cancel(bad)


def test_a_rollback_takes_the_cancel_back(seen):
    message = send("orders", 1, delay=HOUR).message_id
    with pytest.raises(KeyError), transaction.atomic():
        assert cancel(message) == "cancelled"
        raise KeyError
    advance(HOUR)
    drain()
    assert seen == [1]


def test_a_cancelled_message_frees_its_dedup_key():
    message = send("orders", 1, delay=HOUR, dedup_key="a7").message_id
    cancel(message)
    assert not send("orders", 2, dedup_key="a7").duplicate


def test_a_cancel_in_an_open_transaction_does_not_stop_the_partition(seen, second_connection):
    if connection.vendor == "sqlite":
        return  # one writer at a time is what SQLite is
    message, other_one = (send("orders", n, delay=HOUR).message_id for n in (1, 2))
    advance(HOUR)
    send("orders", 3)
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        assert cancel(message) == "cancelled"
    assert sequence("default").sequenced == 2
    with other.active():
        transaction.rollback()
    drain()
    assert sorted(seen) == [1, 2, 3]
    assert other_one
    assert audit("default") == []


@pytest.mark.mysql
def test_as_many_cancels_as_a_pass_has_messages_keep_no_other_waiting(
    second_connection, monkeypatch
):
    monkeypatch.setattr(sequencer, "DUE_PER_PASS", 2)
    messages = [send("orders", n, delay=HOUR + timedelta(seconds=n)).message_id for n in range(4)]
    advance(HOUR * 2)
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        assert {cancel(message) for message in messages[:2]} == {"cancelled"}
    assert sequence("default").sequenced == 2
    assert [*Message.objects.exclude(offset=None).values_list("pk", flat=True)] == messages[2:]


LEVELS = ["read committed", "repeatable read"]


@pytest.mark.mysql
@pytest.mark.parametrize("level", LEVELS)
def test_a_cancel_waits_for_the_pass_that_has_the_message(level, isolation_level, seen, in_thread):
    isolation_level(level)
    message = send("orders", 1, delay=HOUR).message_id
    advance(HOUR)
    with transaction.atomic():
        sequence("default")  # part of our transaction: not committed yet

        def late():
            with transaction.atomic():
                return cancel(message)

        waiting = in_thread(late)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
    assert waiting.result(30) == "visible"
    drain()
    assert seen == [1]


@pytest.mark.mysql
@pytest.mark.parametrize("level", LEVELS)
def test_of_two_cancels_at_once_one_has_done_it(level, isolation_level, in_thread):
    isolation_level(level)
    message = send("orders", 1, delay=HOUR).message_id
    send("orders", 2)

    def late():
        with transaction.atomic():
            return cancel(message)

    with transaction.atomic():
        assert cancel(message) == "cancelled"
        waiting = in_thread(late)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
    assert waiting.result(30) == "unknown"
    assert not Message.objects.filter(pk=message).exists()


@pytest.mark.mysql
@pytest.mark.parametrize("level", LEVELS)
def test_a_cancel_that_comes_too_late_stops_no_partition(level, isolation_level, second_connection):
    isolation_level(level)
    message = send("orders", 1).message_id
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        assert cancel(message) == "visible"
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    assert sequence("default").sequenced == 1


@pytest.mark.mysql
def test_a_message_that_was_sent_since_the_snapshot_is_taken_back(
    isolation_level, second_connection
):
    isolation_level("repeatable read")
    other = second_connection()
    with transaction.atomic():
        assert not Message.objects.exists()  # the snapshot begins
        with other.active():
            message = send("orders", 1, delay=HOUR, dedup_key="a7").message_id
        assert cancel(message) == "cancelled"
    assert not Message.objects.exists()
    assert DedupKey.objects.get().message_id is None


@pytest.mark.mysql
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dedup_key", [None, "a7"])
def test_a_cancel_keeps_nobody_from_a_dedup_key(
    level, dedup_key, isolation_level, second_connection
):
    isolation_level(level)
    message = send("orders", 1, delay=HOUR, dedup_key=dedup_key).message_id
    other = second_connection()
    with transaction.atomic():
        assert cancel(message) == "cancelled"
        with other.active():
            other.execute("SET SESSION innodb_lock_wait_timeout = 1")
            assert not send("orders", 2, dedup_key="b8").duplicate


@pytest.mark.mysql
def test_who_commits_by_hand_can_cancel_whatever_the_isolation(isolation_level):
    isolation_level("repeatable read")
    message = send("orders", 1, delay=HOUR).message_id
    transaction.set_autocommit(False)
    assert Message.objects.exists()  # a transaction is open
    assert cancel(message) == "cancelled"
    transaction.rollback()
    transaction.set_autocommit(True)
    assert Message.objects.exists()


def test_an_id_that_names_another_message_by_now_takes_nothing_back(seen):
    """After a TRUNCATE ids begin again. What was kept names its topic, too."""
    kept = send("reminders", "mine", delay=HOUR)
    Message.objects.all().delete()
    send("orders", 1, delay=HOUR)
    Message.objects.update(id=kept.message_id)
    assert cancel(kept) == "unknown"
    assert cancel(kept.message_id, topic="reminders") == "unknown"
    advance(HOUR)
    drain()
    assert seen == [1]


def test_a_result_names_its_partition_too():
    kept = send("orders", 1, delay=HOUR)
    assert cancel(replace(kept, partition=3)) == "unknown"
    assert cancel(kept, topic="reminders") == "unknown"
    assert cancel(kept) == "cancelled"


def test_an_id_and_its_topic_take_a_message_back():
    kept = send("orders", 1, delay=HOUR)
    assert cancel(kept.message_id, topic="orders") == "cancelled"
    assert not Message.objects.exists()


def test_a_topic_is_one_of_this_namespace(ems_settings):
    ems_settings(NAMESPACE="blue")
    kept = send("orders", 1, delay=HOUR)
    ems_settings(NAMESPACE="")
    assert cancel(kept) == "unknown"
    ems_settings(NAMESPACE="blue")
    assert cancel(kept.message_id, topic="orders") == "cancelled"
