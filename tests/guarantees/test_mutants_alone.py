"""A message whose process died runs with nothing beside it, whichever thread claims it."""

from __future__ import annotations

import threading

import pytest

from streams import consumer, send
from streams.consume.outcome.settle import settle
from streams.log.sequencer import sequence
from streams.models import RetryMessage
from streams.models.retry import Again
from tests.consuming import Process
from tests.processes import PATIENCE_SECONDS, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def test_what_killed_its_process_waits_until_nothing_runs_beside_it(in_thread) -> None:
    running, go_on = threading.Event(), threading.Event()
    calls = []

    @consumer("orders", group="mail", batch=1)
    def handle(messages):
        (message,) = messages
        calls.append(f"{message.body} starts")
        if message.body == "slow":
            running.set()
            go_on.wait(PATIENCE_SECONDS)
        calls.append(f"{message.body} ends")

    process = Process("mail")
    for body in ("deadly", "slow"):
        send("orders", body)
    sequence("default")
    # The first one is claimed and given back as the sweep does after a crash.
    delivery = process.turn._turns.claimer.claim(1, process.feed.consume_timeout())
    assert delivery is not None
    settle(delivery, 1, max_retries=16)
    group, partition = process.feed.group.pk, delivery.partition_id
    slow = in_thread(process.new_worker(1).step)
    assert running.wait(PATIENCE_SECONDS)
    RetryMessage.objects.schedule(group, partition, [Again(0, 2, alone=True)])
    deadly = in_thread(process.new_worker(2).step)
    wait_for(lambda: process.feed.gate.wanted_alone or deadly.done())
    go_on.set()
    slow.result(PATIENCE_SECONDS)
    deadly.result(PATIENCE_SECONDS)
    assert calls == ["slow starts", "slow ends", "deadly starts", "deadly ends"]
