"""The sample: one a minute, true to the tables, thinned to hours, with the first of each period."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.apps import apps
from django.db import OperationalError

from monitoring.live import limits
from monitoring.live.inbox import partition_states
from monitoring.models import GroupSample, PartitionSample
from monitoring.sample import take
from monitoring.sample.grain import floor, grain
from monitoring.sample.take import sample
from monitoring.sample.thinning import old_samples
from streams import Outgoing, Reject, consumer, send, send_many
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.database.clock import database_now
from streams.log.lag import lags
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Message, Step, Topic, UtcNow
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.steps import turns
from streams.steps.of_apps import steps_of_apps
from streams.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def orders(count: int = 3) -> ConsumerGroup:
    consumer("orders", group="mail")(print)
    group = subscribe(registry.find("orders", "mail"), "default", "earliest")  # type: ignore[arg-type]
    send_many([Outgoing("orders", n) for n in range(count)])
    return group


def test_consumers_and_beat_run_it() -> None:
    assert steps_of_apps()["sample"] is sample


def test_a_minute_has_one_sample_however_often_the_step_runs() -> None:
    orders()
    assert sample("default")
    for _ in range(5):
        turns._ask_at.clear()
        assert not sample("default")
    assert PartitionSample.objects.count() == GroupSample.objects.count() == 1


def test_the_next_minute_has_a_sample_though_less_than_a_minute_has_passed() -> None:
    """Taken at 12:00:59, the next one is due at 12:01:00."""
    orders()
    sample("default")
    now = database_now("default")
    seconds = now - floor(now, 1)
    Step.objects.filter(name=take.NAME).update(last_run_at=UtcNow(-seconds - timedelta(seconds=1)))
    PartitionSample.objects.all().delete()
    turns._ask_at.clear()
    assert sample("default")


def test_a_minute_whose_sample_failed_leaves_its_periods_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a chart of days would have a hole of six hours."""
    orders()
    with monkeypatch.context() as broken, pytest.raises(OperationalError):
        broken.setattr(take, "lags", Mock(side_effect=OperationalError(1205, "Lock wait")))
        sample("default")
    assert Step.objects.filter(name=take.NAME).exists()  # it was this process's turn
    Step.objects.filter(name=take.NAME).update(last_run_at=UtcNow(-2 * MINUTE))
    turns._ask_at.clear()
    assert sample("default")
    assert PartitionSample.objects.get().grain == GroupSample.objects.get().grain == 360


def test_namespaces_that_sample_in_one_minute_both_stand_for_its_periods(
    ems_settings: Any,
) -> None:
    """Otherwise the charts of days of one of them would be empty."""
    for name in ("green", "blue"):
        ems_settings(NAMESPACE=name)
        ConsumerGroup.objects.create(topic=Topic.objects.create(name="orders"), name="mail")
        turns._ask_at.clear()
        assert sample("default")
    for model in (PartitionSample, GroupSample):
        grains = model._default_manager.order_by("minute").values_list("minute", "grain")
        assert len(grains) == 2
        assert {length for minute, length in grains if minute == grains[0][0]} == {360}


def test_what_is_done_is_unknown_where_a_count_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not counted as waiting would look as if it were done."""
    monkeypatch.setattr(limits, "COUNT_AT_MOST", 2)
    monkeypatch.setattr(take, "COUNT_AT_MOST", 2)

    @consumer("orders", group="mail")
    def mail(message: Any) -> None:
        raise ValueError

    send_many([Outgoing("orders", n) for n in range(3)])
    drain()
    sample("default")
    row = GroupSample.objects.get()
    assert (row.waiting, row.done) == (2, None)


def test_of_two_samples_of_a_minute_the_first_one_stays() -> None:
    orders()
    take.take("default", NOON, 1)
    sequence("default")
    take.take("default", NOON, 1)
    assert PartitionSample.objects.get().next_offset == 0


def test_it_says_what_the_log_and_the_inbox_hold() -> None:
    orders(3)
    sequence("default")
    send_many([Outgoing("orders", n) for n in range(2)])
    Message.objects.filter(offset=None).update(created_at=UtcNow(-MINUTE))
    sample("default")
    row = PartitionSample.objects.get()
    assert (row.first_offset, row.next_offset, row.inbox) == (0, 3, 2)
    assert row.inbox_age_seconds is not None
    assert 60 <= row.inbox_age_seconds < 90


def test_every_message_of_the_log_is_behind_open_waiting_dead_or_done() -> None:
    @consumer("orders", group="mail")
    def mail(message: Any) -> None:
        if message.body == 0:
            raise Reject("no")
        if message.body == 1:
            raise ValueError

    send_many([Outgoing("orders", n) for n in range(5)])
    drain()
    send("orders", 9)
    sequence("default")
    (lag,) = lags(ConsumerGroup.objects.all(), "default")
    assert (lag.end, lag.behind, lag.open, lag.waiting, lag.dead, lag.done) == (6, 1, 0, 1, 1, 3)
    sample("default")
    row = GroupSample.objects.get()
    assert (row.behind, row.waiting, row.dead, row.done, row.reset_at) == (1, 1, 1, 3, None)


def test_a_reset_is_noted_since_done_does_not_compare_across_it() -> None:
    group = orders()
    sequence("default")
    Reset(group, towards(Target.parse("latest")), using="default").run()
    sample("default")
    assert GroupSample.objects.get().reset_at is not None


def test_what_a_broadcast_group_has_done_is_unknown() -> None:
    topic = Topic.objects.create(name="orders")
    ConsumerGroup.objects.create(topic=topic, name="screens", mode="broadcast")
    sample("default")
    row = GroupSample.objects.get()
    assert row.behind is row.done is row.age_seconds is None


def test_delayed_messages_wait_from_their_time_on_and_not_before() -> None:
    orders(0)
    send("orders", 1, delay=timedelta(hours=1))
    (before,) = partition_states("default", database_now("default"))
    assert (before.inbox, before.inbox_age) == (0, None)
    Message.objects.update(created_at=UtcNow(-60 * MINUTE), due_at=UtcNow(-2 * MINUTE))
    (now,) = partition_states("default", database_now("default"))
    assert now.inbox == 1
    assert now.inbox_age is not None
    assert 2 * MINUTE <= now.inbox_age < 3 * MINUTE


def test_a_large_inbox_is_counted_up_to_a_limit(monkeypatch) -> None:
    monkeypatch.setattr("monitoring.live.inbox.COUNT_AT_MOST", 4)
    orders(6)
    (found,) = partition_states("default", database_now("default"))
    assert found.inbox == 4


def test_the_first_sample_of_a_period_stands_for_it() -> None:
    assert grain(NOON, None) == 360
    assert grain(NOON, NOON - MINUTE) == 360  # 12:00 begins a quarter of a day
    assert grain(NOON + MINUTE, NOON) == 1
    assert grain(NOON + 5 * MINUTE, NOON + 4 * MINUTE) == 5
    # The one at the full hour was missed: the next one stands for the hour.
    assert grain(NOON + 63 * MINUTE, NOON + 58 * MINUTE) == 60


def test_samples_are_thinned_to_hours_after_eight_days_and_deleted_after_ninety() -> None:
    now = database_now("default")
    for days in (1, 9, 91):
        for of_grain in (1, 5, 60, 360):
            when = floor(now, 1) - timedelta(days=days, minutes=of_grain)
            common = {"minute": when, "taken_at": when, "grain": of_grain}
            PartitionSample.objects.create(
                **common, partition_id=1, first_offset=0, next_offset=0, inbox=0
            )
            GroupSample.objects.create(**common, group_id=1, open=0, waiting=0, dead=0, consumers=0)
    assert sum(old_samples("default")) == 2 * 6
    for model in (PartitionSample, GroupSample):
        left = model._default_manager.values_list("minute", "grain")
        assert sorted(((now - minute).days, of_grain) for minute, of_grain in left) == [
            *((1, of_grain) for of_grain in (1, 5, 60, 360)),
            *((9, of_grain) for of_grain in (60, 360)),
        ]


def test_the_nightly_purge_does_it() -> None:
    config = apps.get_app_config("ems_monitoring")
    assert config.ems_old_rows()["samples"] is old_samples  # type: ignore[attr-defined]
