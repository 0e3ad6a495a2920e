"""Deliveries, dead letters, replays and dedup keys outlive their use by so long, and no longer."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from streams import Outgoing, Retry, consumer, runtime_settings, send, send_many
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import settle
from streams.database import batches
from streams.log import topics
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    DedupKey,
    Delivery,
    Message,
    Partition,
    Redrive,
    RetryMessage,
    State,
    SystemConfig,
    Topic,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.retain import old_rows
from streams.retain.purge import Purge
from streams.testing import drain
from tests.consuming import Process
from tests.faults import Guillotine, Once, statements

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def fresh():
    runtime_settings.forget()
    yield
    runtime_settings.forget()


def setting(name, value):
    SystemConfig.objects.update_or_create(name=name, defaults={"value": value})
    runtime_settings.forget()


def expire():
    return Purge("default").delete_old_rows()


def age(rows, by=40 * DAY):
    rows.update(claimed_at=UtcNow(-by), finished_at=UtcNow(-by))


def consumed(number=10, failing=()):
    """Each message is one delivery; those of ``failing`` die at once."""

    @consumer("orders", group="mail", max_retries=0)
    def mail(message):
        if message.body in failing:
            raise ValueError

    setting("consumerBatchSize", 1)
    send_many([Outgoing("orders", n) for n in range(number)])
    drain()
    assert Delivery.objects.count() == number


def left():
    return sorted(Delivery.objects.values_list("first_offset", flat=True))


def test_deliveries_of_finished_messages_are_deleted_when_they_are_old_enough():
    consumed()
    assert expire()["deliveries"] == 0
    age(Delivery.objects.filter(first_offset__lt=7), 29 * DAY)
    assert expire()["deliveries"] == 0
    age(Delivery.objects.filter(first_offset__lt=7), 31 * DAY)
    assert expire()["deliveries"] == 7
    assert left() == [7, 8, 9]
    assert Cursor.objects.get().log_offset == 7
    assert audit("default") == []


def test_zero_days_keep_deliveries_for_ever():
    consumed()
    age(Delivery.objects.all(), 4000 * DAY)
    setting("deliveryRetentionDays", 0)
    assert expire()["deliveries"] == 0
    setting("deliveryRetentionDays", 1)
    assert expire()["deliveries"] == 10


def test_the_audit_still_finds_deliveries_that_somebody_else_has_deleted():
    consumed()
    age(Delivery.objects.filter(first_offset__lt=5))
    assert expire()["deliveries"] == 5
    Delivery.objects.filter(first_offset=6).delete()
    (finding,) = audit("default")
    assert (finding.kind, finding.offsets) == ("uncovered", range(6, 7))


def test_a_delivery_of_what_waits_to_be_retried_is_kept_with_all_above_it():
    @consumer("orders", group="mail")
    def mail(message):
        if message.body == 3:
            raise Retry(delay=DAY)

    setting("consumerBatchSize", 1)
    send_many([Outgoing("orders", n) for n in range(6)])
    drain()
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 3
    assert left() == [3, 4, 5]
    assert audit("default") == []


def test_an_open_delivery_is_kept_with_all_above_it():
    consumed(3)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    first, second = process.claim(1), process.claim(2)
    settle(second, 6, max_retries=1)
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 3
    settle(first, 4, max_retries=1)
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 2
    assert audit("default") == []


def test_a_delivery_that_reaches_beyond_what_is_finished_is_kept():
    @consumer("orders", group="mail", batch=5)
    def mail(messages):
        return {m: Retry(delay=DAY) for m in messages if m.body == 7}

    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 1
    assert left() == [5]
    assert Cursor.objects.get().log_offset == 7
    assert audit("default") == []


def test_deliveries_below_are_deleted_though_one_of_a_redriven_message_is_new():
    consumed(10, failing={2})
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 10
    redrive(DeadMessage.objects.get())
    consumed_again = drain()
    assert consumed_again.failed == 1
    redrive(DeadMessage.objects.latest("pk"))
    age(Delivery.objects.filter(first_offset__gt=2))
    assert audit("default") == []
    assert expire()["deliveries"] == 0
    assert left() == [2]
    send_many([Outgoing("orders", n) for n in range(10, 13)])
    drain()
    age(Delivery.objects.filter(first_offset__gt=2))
    assert expire()["deliveries"] == 3
    assert audit("default") == []


def test_a_group_that_is_set_back_below_its_log_is_found_in_order():
    consumed()
    age(Delivery.objects.all())
    expire()
    Cursor.objects.update(next_offset=4)
    drain()
    assert left() == [4, 5, 6, 7, 8, 9]
    assert audit("default") == []
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 6


def test_many_deliveries_are_deleted_in_batches(monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 3)
    consumed(20)
    age(Delivery.objects.exclude(first_offset=13))
    assert expire()["deliveries"] == 13
    assert left() == list(range(13, 20))
    age(Delivery.objects.all())
    assert expire()["deliveries"] == 7
    assert audit("default") == []


@pytest.mark.exhaustive
@pytest.mark.django_db(transaction=True)
def test_deliveries_may_be_purged_by_a_process_that_is_killed_anywhere(monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 3)
    for point in count(1, 3):
        Message.objects.all().delete()
        for model in (Delivery, Cursor, ConsumerGroup, Partition, Topic):
            model.objects.all().delete()
        registry._registered.clear()
        topics.forget()
        consumed(8)
        age(Delivery.objects.filter(first_offset__lt=6))
        status = in_fork(partial(expire_until_killed, point))
        assert audit("default") == []
        expire()
        assert left() == [6, 7]
        if status == 0:
            break
    assert point > 9
    assert audit("default") == []


def expire_until_killed(point):
    Guillotine(point).install()
    expire()


def test_dead_letters_are_kept_for_ever_unless_told_otherwise():
    consumed(4, failing={1, 2, 3})
    DeadMessage.objects.update(died_at=UtcNow(-4000 * DAY))
    assert expire()["dead letters"] == 0
    setting("deadRetentionDays", 90)
    DeadMessage.objects.filter(offset=2).update(died_at=UtcNow(-89 * DAY))
    assert expire()["dead letters"] == 2
    assert DeadMessage.objects.get().offset == 2
    assert audit("default") == []


def test_a_letter_that_a_retry_has_its_body_from_is_kept():
    consumed(2, failing={0, 1})
    setting("deadRetentionDays", 1)
    redrive(DeadMessage.objects.get(offset=0))
    DeadMessage.objects.update(died_at=UtcNow(-2 * DAY))
    assert expire()["dead letters"] == 1
    assert DeadMessage.objects.get().offset == 0
    RetryMessage.objects.all().delete()
    assert expire()["dead letters"] == 1


def test_a_finished_replay_is_deleted_and_one_that_goes_on_is_not():
    consumed()
    group, partition = ConsumerGroup.objects.get(), Partition.objects.get()
    place = {"group": group, "partition": partition}
    for replay, at in ((1, 5), (2, 4)):
        Cursor.objects.create(**place, replay=replay, next_offset=at, stop_offset=5)
    delivery = Delivery.objects.create(
        **place, first_offset=4, last_offset=4, progress=4, kind="replay", deadline=UtcNow(DAY)
    )
    assert expire()["replays"] == 0
    Delivery.objects.filter(pk=delivery.pk).update(state=State.DONE)
    assert expire()["replays"] == 1
    assert sorted(Cursor.objects.values_list("replay", flat=True)) == [0, 2]


def test_a_redrive_that_has_ended_is_deleted_with_the_deliveries_and_others_are_not():
    rows = [
        Redrive.objects.create(about=about, upto=1, rate=1, who="ann")
        for about in ("old", "new", "stopped")
    ]
    done = Redrive.objects.exclude(about="stopped")
    done.update(state="done", finished_at=UtcNow(-31 * DAY))
    done.filter(about="new").update(finished_at=UtcNow(-29 * DAY))
    Redrive.objects.filter(about="stopped").update(state="stopped", created_at=UtcNow(-31 * DAY))
    setting("deliveryRetentionDays", 0)
    assert expire()["redrives"] == 0
    setting("deliveryRetentionDays", 30)
    assert expire()["redrives"] == 1
    assert list(Redrive.objects.order_by("pk")) == rows[1:]


def test_expired_dedup_keys_are_deleted():
    send("orders", 1, dedup_key="old")
    send("orders", 1, dedup_key="new")
    old = DedupKey.objects.order_by("pk")[:1].get().pk
    DedupKey.objects.filter(pk=old).update(expires_at=UtcNow(-2 * old_rows.KEY_GRACE))
    assert expire()["dedup keys"] == 1
    assert DedupKey.objects.count() == 1
    assert send("orders", 1, dedup_key="new").duplicate
    assert not send("orders", 1, dedup_key="old").duplicate


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_letter_that_is_redriven_at_the_last_moment_is_kept(in_thread):
    consumed(1, failing={0})
    setting("deadRetentionDays", 1)
    DeadMessage.objects.update(died_at=UtcNow(-2 * DAY))

    def redriven(statement):
        assert in_thread(redrive, DeadMessage.objects.get()).result(30)
        return statement()

    with statements(Once("FOR UPDATE SKIP LOCKED", redriven)):
        assert expire()["dead letters"] == 0
    assert DeadMessage.objects.exists()
