"""After a death: when its messages come back, and what runs beside them then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams import Outgoing, consumer, send_many
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import settle
from streams.database.clock import database_now
from streams.log.sequencer import sequence
from streams.models import Consumer, DeadMessage, Delivery, RetryMessage, UtcNow
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import Process
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MINUTE = timedelta(minutes=1)


def claimed(count: int, handler: Callable[[Any], Any] = print, **options: Any) -> Process:
    """A process that has claimed ``count`` messages."""
    consumer("orders", group="mail", **options)(handler)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(count)])
    sequence("default")
    process.claim(count)
    return process


def died() -> None:
    """The leases of all processes end, and the sweep notices."""
    Consumer.objects.all().delete()
    while sweep("default"):
        pass


def begun_again(process: Process) -> Delivery:
    """The next attempt of a retry, which has begun."""
    advance(timedelta(hours=1))
    process.client.register()
    delivery, _row = process.claim_retry()
    delivery.start(MINUTE)
    return delivery


def due_in() -> list[float]:
    """In how many seconds each waiting retry is due."""
    now = database_now("default")
    rows = RetryMessage.objects.filter(delivery=None).values_list("due_at", flat=True)
    return [(due_at - now).total_seconds() for due_at in rows if due_at]


def test_what_a_process_died_with_comes_back_at_once() -> None:
    claimed(3)
    died()
    assert len(due_in()) == 3
    assert max(due_in()) <= 0


def test_so_does_the_message_at_which_an_ordered_group_stands() -> None:
    called = []
    process = claimed(
        3, lambda message: called.append((message.body, message.attempt)), ordered=True
    )
    died()
    process.client.register()
    process.run_until_idle()
    assert called == [(0, 2), (1, 1), (2, 1)]


def test_from_the_second_death_in_a_row_on_it_waits_by_the_ladder() -> None:
    process = claimed(1)
    died()
    for least, most in ((8, 12), (24, 36), (48, 72)):
        begun_again(process)
        died()
        (seconds,) = due_in()
        assert least - 1 < seconds <= most


def test_two_that_died_together_twice_do_not_come_back_together() -> None:
    """After the same delay they would run beside each other, and die together, each time."""
    process = claimed(8)
    died()
    for _message in range(8):
        begun_again(process)
    died()
    assert max(due_in()) - min(due_in()) > 0.8


def test_a_death_after_a_failure_is_the_first_one() -> None:
    process = claimed(1)
    died()
    settle(begun_again(process), 1, [Failure(0, ValueError())], max_retries=16)
    begun_again(process)
    died()
    assert max(due_in()) <= 0


def test_an_overdue_call_of_a_process_that_lives_is_not_repeated_at_once() -> None:
    """The message would hang the next thread, too, while the first call still runs."""
    claimed(1)
    Delivery.objects.update(deadline=UtcNow(-MINUTE))
    assert sweep("default") == 1
    (seconds,) = due_in()
    assert 7 < seconds <= 12


BESIDE = """
import os, signal, time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def note(what, message):
    Handled.objects.create(group=what, topic=message.topic, partition=0, offset=message.offset,
                           value=message.attempt)

@consumer("orders", group="bad", max_retries=4)
def bad(message):
    give_up_at = time.monotonic() + 2
    begun = Handled.objects.filter(group="good begun")
    while begun.count() < message.attempt and time.monotonic() < give_up_at:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)

@consumer("payments", group="good", max_retries=4)
def good(message):
    note("good begun", message)
    time.sleep(1.5)
    note("good ended", message)

call_command("ems_consume", "--start", "earliest", "--threads", "2")
"""


@pytest.mark.slow
def test_a_message_that_kills_its_process_takes_no_other_one_to_the_dead_letters(
    spawn: Spawn, ems_settings: Callable[..., None]
) -> None:
    """Both came back together, each time: five kills made two dead letters."""
    ems_settings(POLL_SECONDS=0.05)
    consumer("orders", group="bad", max_retries=4)(print)
    consumer("payments", group="good", max_retries=4)(print)
    send_many([Outgoing("orders", 1)])
    send_many([Outgoing("payments", 1)])
    for _kill in range(5):
        spawn(BESIDE).wait()
        died()
        advance(timedelta(hours=1))  # the delays do not keep them apart
    assert DeadMessage.objects.get().group.name == "bad"
    spawn(BESIDE)
    wait_for(Handled.objects.filter(group="good ended").exists, "the innocent message")
    assert DeadMessage.objects.get().group.name == "bad"


SUSPECTS = """
import time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def handle(message):
    for what in ("begun", "ended"):
        Handled.objects.create(group=message.group, topic=what, partition=0, offset=message.offset)
        time.sleep(0.5)

for group in ("one", "two"):
    consumer("orders", group=group)(handle)
call_command("ems_consume", "--start", "earliest", "--threads", "4", "--drain")
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_suspects_of_two_groups_run_one_after_the_other(spawn: Spawn) -> None:
    for group in ("one", "two"):
        consumer("orders", group=group)(print)
    processes = [Process("one"), Process("two")]
    send_many([Outgoing("orders", 1)])
    sequence("default")
    for process in processes:
        process.claim(1)
    died()
    for process in processes:
        begun_again(process)
    died()
    assert RetryMessage.objects.filter(alone=True).count() == 2
    advance(MINUTE)
    spawn(SUSPECTS).succeed()
    assert list(Handled.objects.order_by("pk").values_list("topic", flat=True)) == [
        *("begun", "ended"),
        *("begun", "ended"),
    ]
