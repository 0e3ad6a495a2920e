"""Topics are created, grown, retired and deleted, and no message vanishes with one."""

from __future__ import annotations

import threading
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from django.db import OperationalError, connection, transaction

from streams import Outgoing, conf, consumer, runtime_settings, send, send_many
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.database import batches
from streams.database.retrying import PATIENCE
from streams.errors import (
    InvalidName,
    InvalidPartitions,
    SendOutcomeUnknown,
    TopicDenied,
    TopicExists,
    TopicInUse,
    UnknownTopic,
)
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import (
    Access,
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Message,
    Partition,
    RetryMessage,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.operate import topic_deletion as removing
from streams.operate.group_deletion import delete_group
from streams.operate.topic_deletion import TopicDeletion
from streams.operate.topics import create, grow, retire
from streams.testing import drain
from tests.concurrency.locks import held_before, wait_until_one_waits
from tests.consuming import Process, fail, registered
from tests.faults import Guillotine, Once, statements
from tests.rows import rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture(autouse=True)
def fresh():
    topics.forget()
    runtime_settings.forget()


def finished_topic(name="orders", number=5):
    """A retired topic whose one group has finished all there is."""
    consumer(name, group="mail")(lambda message: None)
    send_many([Outgoing(name, n) for n in range(number)])
    drain()
    topic = Topic.objects.get(name=name)
    retire(topic, "default")
    return topic


def delete(topic, **options):
    removal = TopicDeletion(topic, "default", **options)
    removal.close()
    removal.wait(lambda seconds: None)
    removal.finish()


def test_a_topic_is_created_with_its_partitions():
    topic = create("orders", 3, "default")
    assert list(topic.partitions.order_by("number").values_list("number", flat=True)) == [0, 1, 2]
    assert {send("orders", n).partition for n in range(9)} == {0, 1, 2}
    with pytest.raises(TopicExists):
        create("orders", 1, "default")
    for name in ("", " orders", "a" * 128):
        with pytest.raises(InvalidName):
            create(name, 1, "default")
    for number in (0, 1001):
        with pytest.raises(InvalidPartitions):
            create("mail", number, "default")
    assert Topic.objects.count() == 1


def test_new_partitions_are_read_from_their_first_message_by_every_group():
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append(message.body))
    consumer("orders", group="late", start="latest")(lambda message: seen.append(message.body))
    send("orders", "old")
    drain()
    tail = {"topic": Topic.objects.get(), "name": "tail", "mode": "broadcast"}
    ConsumerGroup.objects.create(**tail)
    assert grow(Topic.objects.get(), 3, "default") == 2
    new = Partition.objects.filter(number__gt=0)
    cursors = Cursor.objects.filter(partition__in=new)
    assert set(cursors.values_list("next_offset", "start_offset", "replay")) == {(0, 0, 0)}
    assert sorted(cursors.values_list("group__name", flat=True)) == ["late", "late", "mail", "mail"]
    seen.clear()
    send("orders", "new", partition=2)
    drain()
    assert seen == ["new", "new"]
    for number in (2, 1001):
        with pytest.raises(InvalidPartitions):
            grow(Topic.objects.get(), number, "default")
    assert grow(Topic.objects.get(), 3, "default") == 0
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("statement", ["INSERT INTO `ems_partition`", "INSERT INTO `ems_cursor`"])
def test_a_group_that_comes_while_a_topic_grows_has_a_cursor_everywhere(in_thread, statement):
    topic = create("orders", 1, "default")
    subscribe_to("first")
    with held_before(in_thread, statement, lambda: grow(topic, 3, "default")):
        late = in_thread(subscribe_to, "late")
        wait_until_one_waits(connection.settings_dict["NAME"])
    late.result(30)
    assert every_group_has_every_cursor()


@pytest.mark.mysql
def test_a_topic_that_grows_while_a_group_comes_gives_it_a_cursor(in_thread):
    topic = create("orders", 2, "default")
    work = partial(subscribe_to, "late")
    with held_before(in_thread, "INSERT INTO `ems_cursor`", work):
        growth = in_thread(grow, topic, 4, "default")
        wait_until_one_waits(connection.settings_dict["NAME"])
    growth.result(30)
    assert every_group_has_every_cursor()


def subscribe_to(group):
    consumer("orders", group=group)(print)
    subscribe(registered("orders", group), "default")


def every_group_has_every_cursor():
    wanted = {(g, p) for g in ids(ConsumerGroup) for p in ids(Partition)}
    return set(Cursor.objects.values_list("group", "partition")) == wanted


def ids(model):
    return list(model.objects.values_list("pk", flat=True))


def test_growth_may_be_killed_between_any_two_statements():
    for point in count(1, 2):
        name = f"orders-{point}"
        topic = create(name, 1, "default")
        consumer(name, group="mail")(print)
        subscribe(registered(name, "mail"), "default")
        status = in_fork(partial(grow_until_killed, topic, point))
        partitions = topic.partitions.count()
        assert partitions in (1, 3)
        assert Cursor.objects.filter(partition__topic=topic).count() == partitions
        if status == 0:
            break
    assert point > 6


def grow_until_killed(topic, point):
    Guillotine(point).install()
    grow(topic, 3, "default")


def test_a_retired_topic_refuses_producers_and_lets_consumers_finish():
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append(message.body))
    send("orders", 1)
    topic = Topic.objects.get()
    assert retire(topic, "default")
    with pytest.raises(TopicDenied):
        send("orders", 2)
    drain()
    assert seen == [1]
    assert not retire(topic, "default")


def test_a_topic_is_deleted_with_everything_that_it_has():
    other = rows_after(lambda: finished_topic("other"))

    @consumer("orders", group="bill", max_retries=0)
    def bill(message):
        raise ValueError

    topic = finished_topic("orders")
    assert DeadMessage.objects.count() == 5
    contents = TopicDeletion(topic, "default").contents()
    assert contents["messages"] == 5
    assert contents["dead letters"] == 5
    assert contents["consumer groups"] == 2
    delete(topic)
    assert rows() == other
    assert audit("default") == []


def rows_after(work):
    work()
    return rows()


@pytest.mark.parametrize(
    "obstacle", ["producers", "consumers", "unread", "retry", "delayed", "nobody"]
)
def test_a_topic_in_use_is_not_deleted_unless_that_is_forced(obstacle):
    topic = finished_topic()
    group = ConsumerGroup.objects.get()
    if obstacle == "producers":
        Topic.objects.update(access="read-write")
    elif obstacle == "consumers":
        Consumer.objects.create(client_id="1@2@3", group=group, lease_until=UtcNow(LEASE))
    elif obstacle == "unread":
        Cursor.objects.update(next_offset=4)
    elif obstacle == "nobody":
        delete_group(group)
    elif obstacle == "retry":
        group.retries.create(partition=Partition.objects.get(), offset=1, due_at=UtcNow())
    else:
        Topic.objects.update(access="read-write")
        topics.forget()
        send("orders", "later", delay=timedelta(days=1))
        retire(topic, "default")
    before = rows()
    with pytest.raises(TopicInUse):
        delete(topic)
    assert rows() == before
    delete(topic, force=True)
    assert not any(count for table, count in rows().items() if table != "ems_step")


def test_a_send_from_a_stale_cache_keeps_its_topic():
    """A producer knows the topic for FRESH_SECONDS, and its message stands when they are over."""
    topic = finished_topic()
    Topic.objects.update(access="read-write")
    topics.forget()
    topics.resolve("orders", "default")  # another process has done this
    Topic.objects.update(access="read-only")
    removal = TopicDeletion(topic, "default")
    removal.close()
    removal.wait(lambda seconds: [send("orders", "in time")].clear())
    with pytest.raises(TopicInUse, match="inbox"):
        removal.finish()
    assert drain().done == 1
    delete(topic)


def test_the_wait_is_longer_than_what_a_producer_may_have_cached():
    waited: list[float] = []
    removal = TopicDeletion(finished_topic(), "default")
    removal.close()
    removal.wait(waited.append)
    assert waited == [removing.SETTLED_SECONDS]
    assert waited[0] > conf.FRESH_SECONDS + conf.SURE_SECONDS


def test_the_next_send_to_a_deleted_topic_makes_a_new_one_or_says_why_not():
    delete(finished_topic())
    topics.forget()
    assert send("orders", 1).partition == 0
    assert drain().done == 1
    retire(Topic.objects.get(), "default")
    delete(Topic.objects.get())
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    runtime_settings.forget()
    with pytest.raises(UnknownTopic):
        send("orders", 1)
    assert audit("default") == []


@pytest.mark.mysql
def test_a_topic_is_not_deleted_under_an_open_transaction_that_has_sent_to_it(second_connection):
    topic = finished_topic()
    Topic.objects.update(access="read-write")
    topics.forget()
    producer = second_connection()
    send("orders", "committed")
    with producer.active():
        transaction.set_autocommit(False)
        send("orders", "slow")
    retire(topic, "default")
    before = rows()
    for force in (False, True):
        with pytest.raises(TopicInUse, match="still open" if force else "inbox"):
            delete(topic, force=force)
    assert rows() == before
    with producer.active():
        transaction.commit()
        transaction.set_autocommit(True)
    assert Message.objects.filter(partition__topic=topic, offset=None).count() == 2


@pytest.mark.mysql
@pytest.mark.parametrize("in_block", [False, True])
def test_a_send_that_is_frozen_while_its_topic_is_deleted_raises(monkeypatch, in_thread, in_block):
    """Between the look at its cache and the INSERT it may stand for hours."""
    topic = finished_topic()
    Topic.objects.update(access="read-write")
    monkeypatch.setattr(conf, "SURE_SECONDS", 0.0)
    reached, go_on = threading.Event(), threading.Event()

    def freeze(statement):
        reached.set()
        assert go_on.wait(30)
        return statement()

    def late():
        topics.forget()
        with statements(Once("INSERT INTO `ems_msg`", freeze)):
            if in_block:
                with transaction.atomic():
                    Topic.objects.exists()  # its snapshot, at REPEATABLE READ
                    send("orders", "late")
            else:
                send("orders", "late")

    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    runtime_settings.forget()
    sending = in_thread(late)
    assert reached.wait(30)
    retire(topic, "default")
    delete(topic)
    go_on.set()
    with pytest.raises(UnknownTopic):
        sending.result(30)
    assert not Message.objects.exists()
    assert audit("default") == []


@pytest.mark.mysql
def test_a_frozen_send_to_a_topic_that_is_well_is_a_send(monkeypatch):
    monkeypatch.setattr(conf, "SURE_SECONDS", -1.0)
    send("orders", 1)
    send_many([Outgoing("orders", 2), Outgoing("orders", 3)])
    with transaction.atomic():
        send("orders", 4)
    grow(Topic.objects.get(), 2, "default")
    send("orders", 5)
    assert Message.objects.count() == 5


@pytest.mark.mysql
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("failures", [1, 100])
def test_a_frozen_send_whose_connection_is_lost_afterwards_is_not_said_to_have_failed(
    monkeypatch, many, failures
):
    """Its message is committed: whoever is told that it failed would send it again."""
    monkeypatch.setattr(conf, "SURE_SECONDS", -1.0)
    send("orders", 0)
    left = []

    def lost(execute, sql, *rest):
        if "INTO `ems_msg`" in sql:
            left.extend([OperationalError(2006, "the server has gone away")] * failures)
        elif left:
            raise left.pop()
        return execute(sql, *rest)

    patience = PATIENCE.set(30.0 if failures == 1 else 0.0)
    outcome = nullcontext() if failures == 1 else pytest.raises(SendOutcomeUnknown)
    with statements(lost), outcome:
        send_many([Outgoing("orders", 1)] * 2) if many else send("orders", 1)
    PATIENCE.reset(patience)
    assert Message.objects.count() == (3 if many else 2)


@pytest.mark.mysql
def test_a_transaction_that_sees_the_past_sends_to_no_topic_that_is_denied_since(
    isolation_level, second_connection
):
    isolation_level("repeatable read")
    topic = create("orders", 1, "default")
    send("orders", 0)
    other = second_connection()
    with transaction.atomic():
        Topic.objects.exists()  # its snapshot
        with other.active():
            retire(topic, "default")
        stale(1)
        with pytest.raises(TopicDenied):
            send("orders", 1)
        stale(1)
        with pytest.raises(TopicDenied):
            send("orders", 1)


def stale(seconds):
    """As if what is cached of topics had been read long ago."""
    for key, (_until, info) in list(topics._cache.items()):
        topics._cache[key] = (0.0, info)


def test_a_removal_may_be_killed_between_any_two_statements(monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 2)
    for point in count(1, 11):
        name = f"orders-{point}"
        registry._registered.clear()
        topic = finished_topic(name)
        status = in_fork(partial(delete_until_killed, topic, point))
        if status == 0:
            break
        assert audit("default") == []
        if Topic.objects.filter(name=name).exists():
            delete(topic)
        assert not Topic.objects.filter(name=name).exists()
    assert point > 40
    assert not Message.objects.exists()
    assert not Partition.objects.exists()


def delete_until_killed(topic, point):
    Guillotine(point).install()
    delete(topic)


def test_a_message_that_comes_at_the_last_moment_is_not_deleted():
    """Nobody may send any more by then; if somebody has found a way, the topic stays."""
    topic = finished_topic()
    partition = Partition.objects.get()

    def slip_in(statement):
        Message.objects.create(partition=partition, body=b"1", body_type="json", size=1)
        return statement()

    with statements(Once("DELETE FROM `ems_group`", slip_in)), pytest.raises(TopicInUse):
        delete(topic)
    assert Message.objects.get().body == b"1"
    sequence("default")
    with pytest.raises(TopicInUse, match="no group has read"):
        delete(topic)
    assert Message.objects.get().offset == 5


def test_a_topic_that_is_opened_again_while_it_is_deleted_stays():
    """Who looks it up now sends to it for as long as it is remembered."""
    topic = finished_topic()

    def reopened(statement):
        Topic.objects.update(access=Access.READ_WRITE)
        return statement()

    with (
        statements(Once("DELETE FROM `ems_group`", reopened)),
        pytest.raises(TopicInUse, match="not retired"),
    ):
        delete(topic)
    topics.forget()
    send("orders", "late")
    sequence("default")
    assert Message.objects.get().partition.topic_id == topic.pk


def test_a_deletion_whose_last_reply_is_lost_has_succeeded(monkeypatch):
    topic = finished_topic()
    end, tries = TopicDeletion._end, []

    def ended(removal):
        end(removal)
        tries.append(removal)
        if len(tries) == 1:
            raise OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr(TopicDeletion, "_end", ended)
    delete(topic)
    assert len(tries) == 2
    assert not Topic.objects.exists()


@pytest.mark.parametrize("at", ["orders/0", "consumer groups"])
def test_of_two_deletions_at_once_the_slower_one_succeeds_too(at):
    create("orders", partitions=2, using="default")
    consumer("orders", group="mail")(lambda message: None)
    send_many([Outgoing("orders", n, partition=n % 2) for n in range(4)])
    drain()
    topic = Topic.objects.get()
    retire(topic, "default")

    def overtaken(name, rows):
        if name == at and Topic.objects.exists():
            delete(topic)

    slower = TopicDeletion(topic, "default")
    slower.close()
    slower.finish(overtaken)
    assert not Topic.objects.exists()


def test_a_forced_deletion_goes_on_beside_a_consumer_that_registers_again():
    topic = finished_topic()
    group = ConsumerGroup.objects.get()

    def register(name, rows):
        defaults = {"lease_until": UtcNow(LEASE)}
        Consumer.objects.update_or_create(defaults, client_id="1@2@3", group=group)

    removal = TopicDeletion(topic, "default", force=True)
    removal.close()
    removal.finish(register)
    assert not Topic.objects.exists()
    assert not Consumer.objects.exists()


@pytest.mark.mysql
def test_a_forced_deletion_leaves_no_retry_of_a_call_that_ends_beside_it(in_thread):
    consumer("orders", group="mail")(fail)
    group = subscribe(registered("orders", "mail"), "default")
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    with held_before(in_thread, "INSERT INTO `ems_retry_msg`", process.worker.step):
        deletion = in_thread(partial(delete_group, group, force=True))
        wait_until_one_waits(connection.settings_dict["NAME"], deletion)
    deletion.result()
    assert not ConsumerGroup.objects.exists()
    assert not RetryMessage.objects.exists()


def test_a_connection_that_is_lost_between_two_batches_ends_no_deletion():
    finished_topic()
    lost = OperationalError(2013, "Lost connection to server during query")

    def lose(_statement):
        raise lost

    look = Once("FROM `ems_client`", lose)
    with ExitStack() as after_a_batch:
        group = ConsumerGroup.objects.get()
        delete_group(group, lambda rows: after_a_batch.enter_context(statements(look)))
    assert look.fired
    assert not ConsumerGroup.objects.exists()
