"""The server's clock is set back: what is done by time goes on at once, not when it has caught up
with itself.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import consumer, send
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, RetryMessage, Step, UtcNow
from streams.models.step import SWEEP
from streams.steps.sweep import sweep_if_due
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

EVERY = timedelta(seconds=5)
HOUR = timedelta(hours=1)


def last_run(ago: timedelta) -> None:
    Step.objects.update_or_create(name="step", defaults={"last_run_at": UtcNow(-ago)})


@pytest.mark.parametrize("back", [EVERY * 2, HOUR, timedelta(days=400)])
def test_a_step_that_ran_in_the_future_is_won_once_and_then_as_ever(back):
    last_run(-back)
    assert Step.objects.win("step", EVERY)
    assert not Step.objects.win("step", EVERY)
    last_run(EVERY)
    assert Step.objects.win("step", EVERY)


def test_a_step_that_has_just_run_is_not_won():
    """Also not if the clock of its last runner, another primary's, is a little ahead."""
    assert Step.objects.win("step", EVERY)  # the first time of all
    last_run(-EVERY / 2)
    assert not Step.objects.win("step", EVERY)
    last_run(EVERY / 2)
    assert not Step.objects.win("step", EVERY)


def test_the_sweep_goes_on():
    consumer("orders", group="mail")(print)
    process = Process("mail")
    send("orders", 1)
    sequence("default")
    process.claim()
    Consumer.objects.all().delete()
    Step.objects.update_or_create(name=SWEEP, defaults={"last_run_at": UtcNow(HOUR)})
    assert sweep_if_due("default") == 1
    assert not Delivery.objects.open().exists()
    assert RetryMessage.objects.count() == 1
