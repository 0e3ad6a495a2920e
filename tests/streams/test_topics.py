"""Topics by name: created when missing, remembered once committed, never in anybody's way."""

from __future__ import annotations

import os
import threading
import time
import unittest
from datetime import timedelta

import django.test
import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.backends.signals import connection_created
from django.db.utils import IntegrityError
from django.test import override_settings

from streams import Outgoing, ReceivedMessage, conf, consumer, runtime_settings, send, send_many
from streams.errors import TopicDenied, UnknownTopic
from streams.log import topics
from streams.log.sequencer import sequence
from streams.log.topics import resolve
from streams.models import Access, Message, Partition, SystemConfig, Topic
from streams.operate.topics import grow
from streams.testing import advance, drain, sent
from tests.faults import Once, statements
from tests.hostapp.models import Order
from tests.rows import rows

pytestmark = pytest.mark.django_db(transaction=True)


class RolledBack(Exception):
    pass


def names(using="default"):
    return list(Topic.objects.using(using).order_by("id").values_list("name", flat=True))


def one_partition_each():
    return all(topic.partitions.count() == 1 for topic in Topic.objects.all())


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Orders", "orders"),
        ("ä", "a"),
        ("straße", "strasse"),
        ("订单", "訂單"),
        ("orders.1", "orders_1"),
    ],
)
def test_names_are_compared_byte_for_byte(one, other, clean_registry):
    seen: dict[str, list[ReceivedMessage]] = {one: [], other: []}
    for topic in (one, other):
        consumer(topic, group="mail")(seen[topic].append)
        send(topic, topic, key=topic, tag=topic)
    assert names() == [one, other]
    assert [message.body for message in sent(one)] == [one]
    assert resolve(one, "default").id != resolve(other, "default").id
    drain()
    assert [[m.body for m in seen[topic]] for topic in (one, other)] == [[one], [other]]
    assert Message.objects.get(key=one).tag == one  # keys too
    assert Message.objects.get(tag=other).key == other


def test_a_name_with_blanks_around_cannot_come_in_by_the_admin_either():
    for name in (" orders", "orders "):
        with pytest.raises(ValidationError):
            Topic(name=name).full_clean()


# --- creation ---------------------------------------------------------------------------------


def test_the_first_send_creates_the_topic_with_one_partition():
    result = send("orders", 1)
    topic = Topic.objects.get()
    assert (topic.name, topic.access) == ("orders", Access.READ_WRITE)
    partition = Partition.objects.get()
    assert (partition.topic_id, partition.number, partition.next_offset) == (topic.pk, 0, 0)
    assert (result.topic, result.partition) == ("orders", 0)


def test_a_topic_made_in_the_admin_has_a_partition_too():
    Topic.objects.create(name="orders")
    assert Partition.objects.get().topic.name == "orders"
    topic = Topic.objects.get()
    topic.access = Access.READ_ONLY
    topic.save()
    assert Partition.objects.count() == 1


@pytest.mark.parametrize("many", [False, True])
def test_a_topic_created_in_a_rolled_back_transaction_swallows_no_later_message(many, vendor):
    with pytest.raises(RolledBack), transaction.atomic():
        if many:
            send_many([Outgoing("orders", "lost"), Outgoing("bills", "lost")])
        else:
            send("orders", "lost")
        raise RolledBack
    # On a server it was committed on a connection of its own; on SQLite it was rolled back.
    assert names() == ([] if vendor == "sqlite" else ["orders", "bills"][: 1 + many])
    send("orders", "kept")
    with transaction.atomic():
        send("orders", "kept too")
    assert [message.body for message in sent("orders")] == ["kept", "kept too"]
    assert one_partition_each()
    assert sequence("default").sequenced == 2


def test_a_topic_created_in_a_rolled_back_savepoint_swallows_no_later_message():
    with transaction.atomic():
        with pytest.raises(RolledBack), transaction.atomic():
            send("orders", "lost")
            raise RolledBack
        send("orders", "kept")
    send("orders", "kept too")
    assert [message.body for message in sent("orders")] == ["kept", "kept too"]
    assert sequence("default").sequenced == 2


def test_a_topic_of_the_callers_own_transaction_is_used_but_not_remembered():
    with pytest.raises(RolledBack), transaction.atomic():
        Topic.objects.create(name="orders")
        send("orders", "lost")
        send_many([Outgoing("orders", "lost")])
        assert Message.objects.filter(partition__topic__name="orders").count() == 2
        raise RolledBack
    assert names() == []
    send("orders", "kept")
    assert [message.body for message in sent("orders")] == ["kept"]
    assert sequence("default").sequenced == 1


def test_a_topic_of_the_callers_own_transaction_is_there_after_the_commit():
    with transaction.atomic():
        Topic.objects.create(name="orders")
        send("orders", 1)
    send("orders", 2)
    assert names() == ["orders"]
    assert sequence("default").sequenced == 2


def test_with_autocommit_off_a_rolled_back_topic_swallows_no_later_message(vendor):
    transaction.set_autocommit(False)
    try:
        send("orders", "lost")
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    send("orders", "kept")
    assert [message.body for message in sent("orders")] == ["kept"]
    assert sequence("default").sequenced == 1


@pytest.mark.mysql
def test_nobody_waits_for_a_transaction_that_has_sent_to_a_new_topic(second_connection, in_thread):
    other = second_connection()
    with other.active():
        transaction.set_autocommit(False)
        send("orders", "late")
    assert names() == ["orders"]
    # In threads: they would hang, not fail, if they had to wait.
    results = [in_thread(send, "orders", n) for n in range(3)]
    assert len({result.result(10).message_id for result in results}) == 3
    assert sequence("default").sequenced == 3
    with other.active():
        transaction.commit()
    assert sequence("default").sequenced == 1


@pytest.mark.mysql
def test_a_transaction_that_holds_locks_can_send_to_a_new_topic():
    with transaction.atomic():
        Order.objects.create(number="1")
        list(Order.objects.select_for_update())
        list(Topic.objects.select_for_update())
        send("orders", 1)
    assert sequence("default").sequenced == 1


@pytest.mark.mysql
def test_a_host_in_an_old_snapshot_sends_to_a_topic_created_later(
    second_connection, isolation_level
):
    isolation_level("repeatable read")
    other = second_connection()
    with transaction.atomic():
        assert not Order.objects.exists()  # the snapshot begins
        with other.active():
            topic = Topic.objects.create(name="orders")
        assert not Topic.objects.exists()
        send("orders", 1)
        send("bills", 2)
        send("bills", 3)
        assert not Topic.objects.exists()
    assert Topic.objects.get(name="orders").pk == topic.pk
    assert sequence("default").sequenced == 3


def test_twelve_threads_that_need_the_same_new_topic_get_one(in_thread):
    start = threading.Barrier(12)

    def alone(n):
        start.wait(30)
        return send("orders", n)

    def in_a_transaction(n):
        start.wait(30)
        with transaction.atomic():
            Order.objects.create(number=str(n))
            return send("orders", n)

    futures = [in_thread(alone if n % 2 else in_a_transaction, n) for n in range(12)]
    results = [future.result(60) for future in futures]
    assert names() == ["orders"]
    assert Partition.objects.count() == 1
    assert len({result.message_id for result in results}) == 12
    assert sequence("default").sequenced == 12
    assert sorted(message.body for message in sent("orders")) == list(range(12))


@pytest.mark.slow
def test_processes_that_need_the_same_new_topics_share_them(spawn):
    code = """
import sys
from streams import send
print("ready")
sys.stdout.flush()
for n in range(10):
    send(f"topic-{n}", n)
"""
    for child in [spawn(code) for _ in range(3)]:
        child.succeed()
    assert Topic.objects.count() == Partition.objects.count() == 10
    assert sequence("default").sequenced == 30


def test_the_error_of_a_creation_that_cannot_succeed_is_raised_and_not_repeated(monkeypatch):
    """An IntegrityError that is not the name of somebody who was faster."""

    def refuse(*args, **kwargs):
        raise IntegrityError("no")

    monkeypatch.setattr(Topic, "save", refuse)
    with pytest.raises(IntegrityError):
        send("orders", 1)
    assert names() == []


# --- what is remembered -----------------------------------------------------------------------


def test_a_topic_is_looked_up_once_and_again_when_it_is_no_longer_fresh(
    django_assert_num_queries, monkeypatch
):
    send("orders", 0)
    with transaction.atomic(), django_assert_num_queries(0):
        resolve("orders", "default")
    with django_assert_num_queries(0):
        resolve("orders", "default")
    monkeypatch.setattr(conf, "FRESH_SECONDS", 0.0)
    topics.forget()
    resolve("orders", "default")
    with django_assert_num_queries(1):
        resolve("orders", "default")


def test_a_topic_is_no_longer_fresh_once_its_reply_has_taken_that_long(
    django_assert_num_queries, monkeypatch
):
    """A deletion counts from the time when the topic was closed, which may be before the reply."""
    send("orders", 0)
    topics.forget()
    monkeypatch.setattr(conf, "FRESH_SECONDS", 30.0)

    after = time.monotonic() + 31

    def late(statement):
        monkeypatch.setattr(time, "monotonic", lambda: after)
        return statement()

    with statements(Once("FROM `ems_partition`", late)):
        resolve("orders", "default")
    with django_assert_num_queries(1):
        resolve("orders", "default")


def test_a_changed_access_is_in_force_when_the_topic_is_read_again(stale_topics):
    send("orders", 1)
    Topic.objects.update(access=Access.READ_ONLY)
    stale_topics()
    with pytest.raises(TopicDenied), transaction.atomic():
        send("orders", 2)
    with pytest.raises(TopicDenied):
        send("orders", 3)
    Topic.objects.update(access=Access.READ_WRITE)
    stale_topics()
    with transaction.atomic():
        send("orders", 4)
    send("orders", 5)
    assert [message.body for message in sent("orders")] == [1, 4, 5]


def test_an_access_changed_in_a_rolled_back_transaction_is_not_remembered(stale_topics):
    send("orders", 1)
    stale_topics()
    with pytest.raises(RolledBack), transaction.atomic():
        Topic.objects.update(access=Access.DENIED)
        with pytest.raises(TopicDenied):
            send("orders", 2)
        raise RolledBack
    send("orders", 3)
    assert [message.body for message in sent("orders")] == [1, 3]


def test_a_topic_that_was_deleted_and_created_again_is_found_again(stale_topics):
    send("orders", 1)
    Message.objects.all().delete()
    Partition.objects.all().delete()
    Topic.objects.all().delete()
    stale_topics()
    with transaction.atomic():
        send("orders", 2)
    assert sequence("default").sequenced == 1
    assert [message.body for message in sent("orders")] == [2]


def test_a_topic_that_was_deleted_meanwhile_does_not_grow():
    deleted = Topic(pk=7, name="orders")
    with pytest.raises(UnknownTopic, match="orders"):
        grow(deleted, 3, "default")
    assert not Partition.objects.exists()


@pytest.fixture
def stale_topics():
    """Let what is remembered of topics be older than FRESH_SECONDS."""

    def age():
        for place, (_expires, info) in list(topics._cache.items()):
            topics._cache[place] = (0.0, info)

    return age


def test_a_forked_process_remembers_nothing():
    """What the parent has read may be rolled back in the child's eyes."""
    send("orders", 1)
    assert topics._cache
    assert runtime_settings._cache
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, f"{len(topics._cache)} {len(runtime_settings._cache)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 10) == b"0 0"
    os.close(reader)
    os.close(writer)


# --- in a host's TestCase ---------------------------------------------------------------------


def run_as_host_test(run):
    """Run a function as the only test of a host's TestCase; raises what it raises."""

    class HostTest(django.test.TestCase):
        def test_it(self):
            run()

    result = unittest.TestResult()
    unittest.TestSuite([HostTest("test_it")]).run(result)
    assert not result.errors, result.errors[0][1]
    assert not result.failures, result.failures[0][1]
    assert result.testsRun == 1


def test_a_test_case_leaves_nothing_behind_and_opens_no_second_connection(clean_registry):
    opened = []

    def note(connection, **kwargs):
        opened.append(connection.alias)

    def host_test():
        connection_created.connect(note)
        Order.objects.create(number="1")
        send("orders", 1)
        with transaction.atomic():
            send_many([Outgoing("orders", 2), Outgoing("bills", 3)])
        assert drain().done == 2
        assert names() == ["orders", "bills"]
        connection_created.disconnect(note)

    consumer("orders", group="mail")(lambda message: None)
    before = rows()
    run_as_host_test(host_test)
    run_as_host_test(host_test)  # the second finds nothing of the first
    assert not opened
    assert rows() == before
    send("orders", 4)  # nothing that was rolled back is remembered
    assert sequence("default").sequenced == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestOtherDatabases:
    def test_each_database_is_a_stream_of_its_own(self):
        one = send("orders", "default")
        two = send("orders", "other", using="other")
        send_many([Outgoing("bills", "other")], using="other")
        assert names() == ["orders"]
        assert names("other") == ["orders", "bills"]
        assert [m.body for m in sent("orders")] == ["default"]
        assert [m.body for m in sent("orders", using="other")] == ["other"]
        assert Message.objects.get().pk == one.message_id
        assert Message.objects.using("other").order_by("id")[0].pk == two.message_id

    def test_the_setting_database_chooses_where_messages_go(self, ems_settings):
        ems_settings(DATABASE="other")
        send("orders", 1)
        assert not Topic.objects.exists()
        assert [m.body for m in sent("orders")] == [1]
        assert sequence("other").sequenced == 1

    def test_run_time_settings_are_those_of_the_database(self):
        SystemConfig.objects.using("other").create(name="autoCreateTopic", value=False)
        runtime_settings.forget()
        send("orders", 1)
        with pytest.raises(UnknownTopic):
            send("orders", 1, using="other")

    def test_no_router_can_lead_a_query_of_ems_astray(self, clean_registry):
        """Whatever the host's routers say: a lagging or broken replica must not matter."""
        seen: list[ReceivedMessage] = []
        consumer("orders", group="mail")(seen.append)

        @consumer("orders", group="broken", max_retries=1)
        def fail(message):
            raise ValueError

        with override_settings(DATABASE_ROUTERS=[Astray()]):
            send("orders", 1)
            with transaction.atomic():
                send_many([Outgoing("orders", 2), Outgoing("bills", 3)])
            assert drain().failed == 2
            advance(timedelta(hours=1))
            assert drain().dead == 2
            assert [m.body for m in sent("orders")] == [1, 2]
        assert [m.body for m in seen] == [1, 2]
        assert set(rows("other").values()) == {0}


class Astray:
    """A router of a host project, for whom every read and write belongs elsewhere."""

    def db_for_read(self, model, **hints):
        return "nowhere" if model._meta.app_label == "ems" else None

    db_for_write = db_for_read
