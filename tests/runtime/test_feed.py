"""A feed: the limits in force."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streams import conf, consumer, runtime_settings, send
from streams.consume.limits import Overrides
from streams.models import Access, ConsumerGroup, SystemConfig, Topic
from streams.process import progress
from streams.process import running_group as feeds
from streams.process.running_group import RunningGroup, Totals
from streams.testing import advance
from tests.consuming import Process, registered

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


NONE = Overrides()


def make_feed(overrides=NONE, **options):
    consumer("orders", group="mail", **options)(print)
    return RunningGroup(registered("orders", "mail"), "default", overrides)


@pytest.fixture
def always_fresh(monkeypatch):
    monkeypatch.setattr(feeds, "FRESH_SECONDS", 0)


def test_an_admins_change_holds_as_soon_as_it_is_read(always_fresh):
    feed = make_feed(batch=10, consume_timeout=60)
    assert feed.limits().batch == 10
    ConsumerGroup.objects.update(batch=3, max_retries=2, consume_timeout=7)
    limits = feed.limits()
    assert (limits.batch, limits.max_retries) == (3, 2)
    assert limits.consume_timeout == timedelta(seconds=7)
    assert feed.consume_timeout() == timedelta(seconds=7)


def test_what_was_read_holds_for_five_seconds(monkeypatch, django_assert_num_queries):
    assert conf.FRESH_SECONDS == 5
    feed = make_feed()
    feed.limits()
    ConsumerGroup.objects.update(paused=True)
    with django_assert_num_queries(0):
        assert feed.limits() is not None
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 5.1)
    assert feed.limits() is None


def test_a_paused_group_claims_nothing_until_it_goes_on(always_fresh):
    calls: list[Any] = []
    consumer("orders", group="mail")(calls.append)
    process = Process("mail")
    send("orders", 1)
    ConsumerGroup.objects.update(paused=True)
    process.run_until_idle()
    process.poller.step()
    assert calls == []
    ConsumerGroup.objects.update(paused=False)
    process.run_until_idle()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("access", "handled"),
    [
        (Access.READ_WRITE, 1),
        (Access.READ_ONLY, 1),
        (Access.WRITE_ONLY, 0),
        (Access.DENIED, 0),
    ],
)
def test_a_topic_that_is_not_to_be_read_is_not_consumed(always_fresh, access, handled):
    calls: list[Any] = []
    consumer("orders", group="mail")(calls.append)
    process = Process("mail")
    send("orders", 1)
    Topic.objects.update(access=access)
    process.run_until_idle()
    assert len(calls) == handled
    Topic.objects.update(access=Access.READ_WRITE)
    process.run_until_idle()
    assert len(calls) == 1


def test_retries_of_a_paused_group_wait_too(always_fresh):
    calls: list[Any] = []

    @consumer("orders", group="mail")
    def handle(message):
        calls.append(message.attempt)
        if message.attempt == 1:
            raise ValueError

    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    ConsumerGroup.objects.update(paused=True)
    advance(timedelta(minutes=1))
    process.client.register()
    process.run_until_idle()
    assert calls == [1]
    ConsumerGroup.objects.update(paused=False)
    process.run_until_idle()
    assert calls == [1, 2]


def test_a_group_that_was_deleted_claims_nothing(always_fresh):
    feed = make_feed()
    ConsumerGroup.objects.all().delete()
    assert feed.limits() is None


def test_run_time_settings_hold_where_nobody_said_otherwise(always_fresh):
    feed = make_feed()
    SystemConfig.objects.create(name="consumerBatchSize", value=77)
    runtime_settings.forget()
    assert feed.limits().batch == 77
    assert make_feed(Overrides(batch=5)).limits().batch == 5


# -- what is said of a group each minute --


@pytest.fixture
def minute(monkeypatch, caplog):
    """Let a minute pass, and return what the log says of its groups."""
    caplog.set_level(logging.INFO, "streams.supervisor")
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)

    def pass_one(said):
        caplog.clear()
        said.step()
        return [
            f"{record.ems_handled} handled"
            for record in caplog.records
            if record.name == "streams.supervisor"
        ]

    return pass_one


def test_an_idle_group_is_said_once_and_one_with_work_each_minute(minute):
    feed = make_feed()
    said = progress.Progress([feed])
    assert minute(said) == []  # its start has said where it is
    for handled in (3, 2):
        feed.totals += replace(Totals(), done=handled)
        assert minute(said) == [f"{handled} handled"]
    assert minute(said) == ["0 handled"]  # from now on it is idle
    assert minute(said) == minute(said) == []
    feed.totals += replace(Totals(), done=1)
    assert minute(said) == ["1 handled"]


def test_a_group_that_does_nothing_although_messages_wait_is_said_each_minute(minute):
    feed = make_feed()
    said = progress.Progress([feed])
    send("orders", 1)
    Process("mail").poller.step()
    assert minute(said) == minute(said) == ["0 handled"]
