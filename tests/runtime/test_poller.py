"""The poller: sequences, wakes, and slows down when there is nothing to do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from streams import Retry, consumer, send
from streams.conf import settings
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import release, settle
from streams.deliver import due, poller
from streams.deliver.poller import QUICK_SECONDS
from streams.log.sequencer import BUSY_SECONDS
from streams.models import ConsumerGroup, Message, Partition
from streams.testing import advance
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def process():
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail", drain=True)
    process.forget_wake_up()  # the first look is over
    return process


def test_a_look_sequences_and_wakes_the_group(process):
    send("orders", 1)
    process.poller.step()
    assert not Message.objects.inbox().exists()
    assert process.woken
    assert not process.lifecycle.stopping


def test_a_retry_that_is_due_wakes_its_group(process):
    send("orders", 1)
    process.poller.step()
    delivery = process.claim(1, timedelta(seconds=60))
    settle(delivery, 1, [Failure(0, Retry(delay=3600))], max_retries=16)
    process.forget_wake_up()
    process.poller.step()
    assert not process.woken
    advance(timedelta(hours=2))
    process.poller.step()
    assert process.woken


def test_what_was_given_back_wakes_its_group_and_keeps_a_drain_from_ending():
    consumer("orders", group="mail")(print)
    process = Process("mail", drain=True)
    send("orders", 1)
    process.poller.step()
    release(process.claim(1, timedelta(seconds=60)))
    process.forget_wake_up()
    process.poller.step()
    assert process.woken
    assert not process.lifecycle.stopping
    process.worker.step()
    process.poller.step()
    assert process.lifecycle.stopping


def test_a_paused_group_is_not_woken(process):
    ConsumerGroup.objects.update(paused=True)
    send("orders", 1)
    process.poller.step()
    assert not process.woken


def test_idle_polling_slows_down_to_the_setting_and_work_makes_it_quick_again(
    process, ems_settings
):
    ems_settings(POLL_SECONDS=0.3)
    process.poller._drain = False
    pauses = [process.poller.step() for _ in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.3
    send("orders", 1)
    assert process.poller.step() < 0.3


@pytest.mark.mysql
def test_while_another_process_holds_a_partition_it_looks_again_very_soon(
    process, second_connection
):
    send("orders", 1)
    with second_connection().active(), transaction.atomic():
        list(Partition.objects.select_for_update())
        with second_connection().active():
            assert process.poller.step() == BUSY_SECONDS
    assert process.poller.step() >= QUICK_SECONDS
    assert process.woken


def test_with_drain_it_stops_when_nothing_is_left(process):
    send("orders", 1)
    process.poller.step()
    assert not process.lifecycle.stopping
    process.worker.step()
    process.poller.step()
    assert process.lifecycle.stopping


def test_with_drain_it_does_not_stop_while_a_worker_is_busy(process):
    with process.activity.busy():
        process.poller.step()
        assert not process.lifecycle.stopping
    process.poller.step()
    assert process.lifecycle.stopping


def test_with_drain_it_does_not_stop_because_a_worker_was_quicker_than_the_look(
    process, monkeypatch
):
    """It claimed and finished between the poller's look and its decision; what it sent is not
    sequenced yet."""

    def look_and_be_overtaken(places, using):
        seen = due.what_is_due(places, using)
        with process.activity.busy():
            send("orders", 2)
        return seen

    monkeypatch.setattr(poller, "what_is_due", look_and_be_overtaken)
    process.poller.step()
    assert not process.lifecycle.stopping


def test_it_is_held_until_the_next_thing_is_due(process):
    process.poller._pause = 60.0
    send("orders", 1, delay=0.5)
    assert process.poller.step() < 0.6
    Message.objects.update(due_at=Message.objects.get().created_at + timedelta(days=365))
    assert process.poller.step() == settings().POLL_SECONDS


def test_without_drain_it_never_stops(process):
    process.poller._drain = False
    for _ in range(3):
        process.poller.step()
    assert not process.lifecycle.stopping
