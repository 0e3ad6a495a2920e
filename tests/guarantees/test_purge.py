"""The purge takes what retention does not keep and nobody needs, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, Retry, consumer, send, send_many
from streams.chaos.forks import in_fork
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import settle
from streams.database import batches
from streams.errors import LeaseLost
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.operate.group_deletion import delete_group
from streams.retain import purge as purging
from streams.retain.purge import Purge
from streams.retain.purge_floor import kept_from, purge_floor
from streams.testing import advance, drain
from tests.consuming import Process, consume_the_rest
from tests.faults import Guillotine, Once, statements, strides

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def keep(topic: str = "orders", **retention: object) -> None:
    Topic.objects.filter(name=topic).update(**retention)


def age(below: int, by: timedelta = 2 * DAY) -> None:
    """Make the messages below an offset that old."""
    Message.objects.filter(offset__lt=below).update(sequenced_at=UtcNow(-by))


def content(messages):
    """A handler that has no complaint."""


def log(number: int, topic: str = "orders") -> None:
    """A log of so many messages that the group "mail" consumes, all of them."""
    consumer(topic, group="mail", batch=5)(content)
    send_many([Outgoing(topic, n) for n in range(number)])
    drain()


def kept(topic: str = "orders") -> list[int]:
    rows = Message.objects.filter(partition__topic__name=topic)
    return sorted(offset for offset in rows.values_list("offset", flat=True) if offset is not None)


def purge(**options: object) -> purging.Purged:
    (outcome,) = Purge("default", **options).run()  # type: ignore[arg-type]
    return outcome


def first_offset() -> int:
    return Partition.objects.get(number=0).first_offset


def test_nothing_is_purged_of_a_topic_without_retention():
    log(10)
    age(10)
    assert purge().deleted == 0
    assert kept() == list(range(10))


def test_messages_are_kept_as_long_as_the_topic_says():
    log(10)
    keep(retention_seconds=86400)
    age(7)
    outcome = purge()
    assert (outcome.deleted, outcome.floor.offset) == (7, 7)
    assert kept() == [7, 8, 9]
    assert first_offset() == 7
    assert audit("default") == []


@pytest.mark.parametrize("old", [0, 1, 63, 64, 65, 99, 100])
def test_the_age_is_found_at_any_place_of_the_log(old):
    log(100)
    keep(retention_seconds=3600)
    age(old)
    assert purge().floor.offset == old
    assert kept() == list(range(old, 100))


def test_as_many_messages_are_kept_as_the_topic_says_of_each_partition():
    log(10)
    keep(retention_count=4)
    purge()
    assert kept() == [6, 7, 8, 9]
    keep(retention_count=100)
    assert purge().deleted == 0
    assert kept() == [6, 7, 8, 9]


def test_what_every_group_has_finished_is_not_kept_if_the_topic_says_so():
    log(10)
    slow = subscribe_at(3)
    keep(retention_consumed=True)
    assert purge().floor.offset == 3
    Cursor.objects.filter(group=slow).update(next_offset=10, start_offset=10)
    assert purge().floor.offset == 10
    assert kept() == []
    send("orders", "more")
    drain()
    assert Cursor.objects.get(group__name="mail").next_offset == 11
    assert audit("default") == []


def subscribe_at(offset: int, name: str = "slow", topic: str = "orders") -> ConsumerGroup:
    of = Topic.objects.get(name=topic)
    group = ConsumerGroup.objects.create(topic=of, name=name)
    for partition in of.partitions.all():
        Cursor.objects.create(
            group=group, partition=partition, next_offset=offset, start_offset=offset
        )
    return group


def test_a_topic_without_a_group_keeps_what_nobody_could_read_yet():
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    keep(retention_consumed=True)
    assert purge().deleted == 0
    ConsumerGroup.objects.create(topic=Topic.objects.get(), name="tail", mode="broadcast")
    assert purge().deleted == 0
    assert kept() == list(range(5))


def test_a_last_group_that_is_deleted_meanwhile_leaves_what_nobody_could_read_yet():
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    keep(retention_consumed=True)
    group = subscribe_at(0)

    def gone(statement):
        delete_group(group)
        return statement()

    # It is gone before the partition is locked, and after the limits were read.
    with statements(Once("SELECT g.`id`, c.`id`", gone)):
        assert purge().deleted == 0
    assert not ConsumerGroup.objects.exists()
    assert kept() == list(range(5))


def test_a_rule_that_is_changed_while_a_purge_runs_is_in_force_for_what_comes_next():
    for topic in ("a", "b"):
        log(5, topic)
        keep(topic, retention_count=1)

    def keep_b(_name: str, _rows: int) -> None:
        keep("b", retention_count=None)

    Purge("default", say=keep_b).run()
    assert (kept("a"), kept("b")) == ([4], list(range(5)))


def test_the_slowest_group_is_never_overtaken():
    log(10)
    subscribe_at(4)
    subscribe_at(6, "slower")
    keep(retention_seconds=3600)
    age(10)
    outcome = purge()
    assert kept() == list(range(4, 10))
    assert [(hold.what, hold.offset) for hold in outcome.floor.holds] == [
        ("cursor", 4),
        ("cursor", 6),
    ]


def test_an_open_delivery_and_a_retry_are_never_overtaken():
    failing: set[int] = {2}

    @consumer("orders", group="mail", batch=5)
    def mail(messages):
        return {m: Retry("later", delay=DAY) for m in messages if m.body in failing}

    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    keep(retention_seconds=3600)
    age(10)
    assert [hold.what for hold in purge().floor.holds] == ["retry"]
    assert kept() == list(range(2, 10))
    failing.clear()
    advance(2 * DAY)
    process = Process("mail")
    process.claim_retry()
    assert [hold.what for hold in purge().floor.holds] == ["delivery", "retry"]
    assert kept() == list(range(2, 10))
    consume_the_rest("mail")
    assert purge().deleted == 8
    assert audit("default") == []


def test_what_is_settled_of_an_open_delivery_can_go():
    log(3)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    delivery = process.claim()
    settle(delivery, 5, max_retries=3)
    keep(retention_count=0)
    assert purge().floor.offset == 5
    settle(delivery, 8, max_retries=3)
    assert purge().floor.offset == 8


def test_a_replay_keeps_what_it_still_has_to_read():
    log(10)
    group, partition = ConsumerGroup.objects.get(), Partition.objects.get()
    replay = Cursor.objects.create(
        group=group, partition=partition, replay=1, next_offset=3, start_offset=3, stop_offset=6
    )
    keep(retention_count=0)
    assert [hold.what for hold in purge().floor.holds] == ["replay"]
    assert kept() == list(range(3, 10))
    Cursor.objects.filter(pk=replay.pk).update(next_offset=6)
    assert purge().floor.offset == 10


def test_nothing_goes_before_it_is_in_the_archive():
    log(10)
    keep(retention_count=0, archive=True)
    Partition.objects.update(archived_offset=4)
    assert [hold.what for hold in purge().floor.holds] == ["archive"]
    assert [hold.what for hold in purge(force=True).floor.holds] == ["archive"]
    assert kept() == list(range(4, 10))


def test_nobody_is_forced_past_what_is_not_archived():
    log(10)
    subscribe_at(0)
    keep(retention_count=1, archive=True)
    Partition.objects.update(archived_offset=4)
    assert purge(force=True).skipped.messages == 4
    assert Cursor.objects.get(group__name="slow").next_offset == 4
    assert kept() == list(range(4, 10))


def test_the_inbox_is_never_touched():
    log(5)
    send("orders", "delayed", delay=DAY)
    send("orders", "now")
    keep(retention_count=0, retention_seconds=1, retention_consumed=True)
    age(5)
    Message.objects.update(created_at=UtcNow(-DAY))
    assert purge(force=True).deleted == 5
    assert Message.objects.filter(offset=None).count() == 2
    drain()
    assert Partition.objects.get().next_offset == 6


def test_a_dry_run_says_what_a_purge_does_and_changes_nothing():
    log(10)
    subscribe_at(4)
    keep(retention_count=2)
    before = list(Partition.objects.values()), kept()
    (would,) = Purge("default").preview()
    assert (would.floor.messages, would.floor.offset) == (4, 4)
    (would,) = Purge("default", force=True).preview()
    assert (would.floor.messages, would.floor.offset) == (8, 8)
    assert [hold.offset for hold in would.past] == [4]
    assert (list(Partition.objects.values()), kept()) == before
    assert purge(force=True).deleted == 8


def test_a_forced_purge_goes_past_everybody_and_leaves_it_on_record():
    """One group has not begun, the other has a message in hand and two that have failed."""

    @consumer("orders", group="mail", batch=5)
    def mail(messages):
        return {m: Retry("later", delay=DAY) for m in messages if m.body in (1, 3)}

    send_many([Outgoing("orders", n) for n in range(20)])
    drain()
    process = Process("mail")
    advance(2 * DAY)
    held, _row = process.claim_retry()
    send_many([Outgoing("orders", n) for n in range(20, 30)])
    sequence("default")
    range_ = process.claim(batch=10)
    subscribe_at(0)
    keep(retention_count=5)
    outcome = purge(force=True)
    assert kept() == list(range(25, 30))
    assert vars(outcome.skipped) == {"messages": 25, "deliveries": 2, "retries": 1}
    skipped = Delivery.objects.filter(state=State.SKIPPED)
    assert {(d.group.name, d.kind, d.first_offset, d.last_offset) for d in skipped} == {
        ("slow", Kind.NEW, 0, 24),
        ("mail", Kind.RETRY, held.first_offset, held.last_offset),
        ("mail", Kind.RETRY, 3, 3),
        ("mail", Kind.NEW, 20, 29),
    }
    assert Cursor.objects.get(group__name="slow").next_offset == 25
    # Its claim is not lost: what is still there comes again.
    retries = RetryMessage.objects.filter(group__name="mail").order_by("offset")
    assert list(retries.values_list("offset", flat=True)) == list(range(25, 30))
    assert audit("default") == []
    for delivery in (held, range_):
        with pytest.raises(LeaseLost):
            settle(delivery, delivery.last_offset + 1, max_retries=3)
    consume_the_rest("mail")
    assert audit("default") == []


def covered() -> set[int]:
    """The offsets that a delivery of the group's own cursor covers."""
    rows = Delivery.objects.filter(kind=Kind.NEW).values_list("first_offset", "last_offset")
    return {offset for first, last in rows for offset in range(first, last + 1)}


@pytest.mark.parametrize("floor_", [3, 5, 7])
def test_a_forced_purge_sets_an_ordered_group_free(floor_):
    """What it has in hand ends, and it goes on with the first message that is kept."""
    seen: list[int] = []
    consumer("orders", group="mail", ordered=True)(lambda message: seen.append(message.body))
    send_many([Outgoing("orders", n) for n in range(9)])
    process = Process("mail")
    sequence("default")
    delivery = process.claim(batch=5)
    assert Cursor.objects.get().open_delivery == delivery.pk
    keep(retention_count=9 - floor_)
    outcome = purge(force=True)
    assert outcome.floor.offset == floor_
    # Five were in hand, so what lies beyond them was unread, and is on record.
    assert vars(outcome.skipped) == {"messages": max(0, floor_ - 5), "deliveries": 1, "retries": 0}
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.open_delivery, cursor.attempt) == (floor_, None, 1)
    assert covered() == set(range(max(5, floor_)))
    assert not RetryMessage.objects.exists()
    with pytest.raises(LeaseLost):
        settle(delivery, 5, max_retries=3)
    drain()
    assert seen == list(range(floor_, 9))
    assert audit("default") == []


def test_a_forced_purge_takes_many_retries_in_steps(monkeypatch):
    monkeypatch.setattr("streams.retain.forced_purge.STEP", 3)

    @consumer("orders", group="mail", batch=5)
    def mail(messages):
        return {m: Retry("later", delay=DAY) for m in messages}

    send_many([Outgoing("orders", n) for n in range(11)])
    drain()
    keep(retention_count=1)
    outcome = purge(force=True)
    assert (outcome.skipped.retries, kept()) == (10, [10])
    assert list(RetryMessage.objects.values_list("offset", flat=True)) == [10]
    assert audit("default") == []


def test_without_force_only_age_and_count_would_be_forced():
    """“What every group has finished” is not a reason to take unread messages away."""
    log(5)
    subscribe_at(0)
    keep(retention_consumed=True)
    assert purge(force=True).deleted == 0
    assert kept() == list(range(5))


def test_what_was_redriven_reads_its_letter_after_the_message_is_purged():
    seen: list[object] = []

    @consumer("orders", group="mail", max_retries=0)
    def mail(message):
        seen.append(message.body)
        if len(seen) < 2:
            raise ValueError("no")

    send("orders", "precious")
    drain()
    keep(retention_count=0)
    redrive(DeadMessage.objects.get())
    assert purge().deleted == 1
    assert purge(force=True).skipped.rows == 0
    drain()
    assert seen == ["precious", "precious"]
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_a_gap_in_the_log_is_passed_at_once(monkeypatch):
    """A log leaves out offsets where it was rewound, and a purge has deleted some before."""
    monkeypatch.setattr(batches, "BATCH", 3)
    log(20)
    gap = 1_000_000
    Message.objects.filter(offset__range=(2, 11)).delete()
    Message.objects.filter(offset__gte=14).update(offset=F("offset") + gap)
    Partition.objects.update(next_offset=20 + gap)
    Cursor.objects.update(next_offset=20 + gap)
    Topic.objects.update(retention_consumed=True)
    with CaptureQueriesContext(connection) as queries:
        assert purge().deleted == 10
    assert kept() == []
    assert len(queries) < 60


@strides(5)
def test_a_purge_may_be_killed_between_any_two_statements(monkeypatch, stride):
    monkeypatch.setattr(batches, "BATCH", 3)
    for point in count(1, stride):
        name = f"orders-{point}"
        log(10, name)
        subscribe_at(4, f"slow-{point}", name)
        Topic.objects.filter(name=name).update(retention_count=2)
        topic = Topic.objects.get(name=name)
        status = in_fork(partial(purge_until_killed, topic, point))
        partition = topic.partitions.get()
        # Whenever it dies: nothing is gone that first_offset does not say.
        assert kept(name)[-6:] == list(range(4, 10))
        assert partition.first_offset in (0, 4)
        assert partition.first_offset or len(kept(name)) == 10
        Purge("default").run(topic)
        assert kept(name) == list(range(4, 10))
        if status == 0:
            break
    assert point > 12  # it did die at many places
    assert audit("default") == []


def purge_until_killed(topic, point):
    Guillotine(point).install()
    Purge("default").run(topic)


@strides(19, 3)
def test_a_forced_purge_may_be_killed_between_any_two_statements(monkeypatch, stride):
    monkeypatch.setattr("streams.retain.forced_purge.STEP", 2)
    for point in count(1, stride):
        name = f"orders-{point}"

        @consumer(name, group="mail", batch=5)
        def mail(messages):
            return {m: Retry("later", delay=DAY) for m in messages if m.body % 2}

        send_many([Outgoing(name, n) for n in range(8)])
        drain()
        subscribe_at(2, f"slow-{point}", name)
        Topic.objects.filter(name=name).update(retention_count=2)
        topic = Topic.objects.get(name=name)
        status = in_fork(partial(force_until_killed, topic, point))
        assert audit("default") == []
        Purge("default", force=True).run(topic)
        assert kept(name) == [6, 7]
        if status == 0:
            break
        RetryMessage.objects.all().delete()
        Delivery.objects.all().delete()
        Cursor.objects.all().delete()
        ConsumerGroup.objects.filter(name__startswith="slow").delete()
    assert point > 40  # it did die at many places


def force_until_killed(topic, point):
    Guillotine(point).install()
    Purge("default", force=True).run(topic)


def test_a_purge_is_bounded_and_the_next_one_goes_on(monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 2)
    log(20)
    keep(retention_count=0)
    work = Purge("default", seconds=0.0)
    work.run()
    assert not work.finished
    assert first_offset() == 20
    assert len(kept()) == 20
    work = Purge("default", seconds=60.0)
    work.run()
    assert work.finished
    assert kept() == []


def test_the_floor_is_what_a_claim_leaves_behind_in_both_its_states():
    """A claim moves the cursor and opens the delivery: the offset is needed before and after."""
    log(5)
    send_many([Outgoing("orders", n) for n in range(5)])
    sequence("default")
    keep(retention_count=0)
    partition = Partition.objects.select_related("topic").get()
    wanted = kept_from(partition, partition.topic, "default")
    before = purge_floor(partition, partition.topic, wanted, "default")
    Process("mail").claim(batch=3)
    after = purge_floor(partition, partition.topic, wanted, "default")
    assert (before.offset, after.offset) == (5, 5)
    assert [hold.what for hold in after.holds] == ["delivery", "cursor"]
