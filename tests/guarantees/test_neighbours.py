"""What one group's trouble costs the other groups of its process: killed processes, hung calls."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from streams import Outgoing, send, send_many
from streams.models import Consumer, Delivery, Message, RetryMessage, State
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.hostapp.models import Handled
from tests.processes import Child, Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

SLOW = 6

CONSUMER = """
import time
from streams import consumer
from tests.hostapp.models import Handled
from django.core.management import call_command

def note(what, message):
    Handled.objects.create(group=what, topic=message.topic, partition=0, offset=message.offset,
                           value=message.attempt)

@consumer("orders", group="slow", threads=SLOW)
def slow(message):
    note(f"begun {message.attempt}", message)
    while not Handled.objects.filter(group=f"let go {message.attempt}").exists():
        time.sleep(0.02)
    note("ended", message)

@consumer("payments", group="good", threads=2)
def good(message):
    note("good", message)

call_command("ems_consume", "--start", "earliest", "--batch", "1")
""".replace("SLOW", str(SLOW))


def noted(what: str) -> int:
    return Handled.objects.filter(group=what).count()


def let_go(attempt: int) -> None:
    Handled.objects.create(group=f"let go {attempt}", topic="", partition=0, offset=0)


def died() -> None:
    """Let the sweep find the killed process, and its retries be due."""
    Consumer.objects.all().delete()
    while sweep("default"):
        pass
    advance(timedelta(minutes=1))


def killed(child: Child) -> None:
    child.kill()
    died()


def others_go_on(count: int) -> None:
    before = noted("good")
    send_many([Outgoing("payments", n) for n in range(count)])
    wait_for(lambda: noted("good") == before + count, "the other group")
    of_good = Delivery.objects.open().filter(group__name="good")
    wait_for(lambda: not of_good.exists(), "its settlement: nothing of it is repeated after a kill")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_calls_that_died_with_their_process_hold_up_nobody(spawn: Spawn, ems_settings) -> None:
    ems_settings(POLL_SECONDS=0.05)
    send_many([Outgoing("orders", n) for n in range(SLOW)])
    first = spawn(CONSUMER)
    wait_for(lambda: noted("begun 1") == SLOW, "the calls")
    killed(first)

    # One death proves nothing: they run again, all together.
    second = spawn(CONSUMER)
    wait_for(lambda: noted("begun 2") == SLOW, "the second calls")
    others_go_on(20)
    killed(second)

    # Two deaths make a suspect. It runs alone in its group, and the other group does not notice.
    spawn(CONSUMER)
    wait_for(lambda: noted("begun 3") == 1, "the first suspect")
    others_go_on(20)
    assert noted("begun 3") == 1
    assert not Delivery.objects.filter(state=State.RELEASED).exists()
    let_go(3)
    wait_for(lambda: noted("ended") == SLOW, "the end of all")
    wait_for(lambda: not RetryMessage.objects.exists(), "their settlement")
    assert not Delivery.objects.filter(state=State.RELEASED).exists()


HANGING = """
import datetime, time
from streams import consumer
from streams.process.shared import in_flight
from django.core.management import call_command
in_flight.HUNG_GRACE = datetime.timedelta(seconds=0.5)

@consumer("orders", group="bad", consume_timeout=1)
def bad(message):
    time.sleep(3600)

consumer("payments", group="good")(lambda message: None)
call_command("ems_consume", "--start", "earliest", "--threads", "2")
"""


@pytest.mark.exhaustive
def test_a_group_whose_handler_hangs_leaves_the_others_quick(
    spawn: Spawn, ems_settings, in_thread
) -> None:
    """Every hung call ends its process; a process manager starts the next one."""
    ems_settings(POLL_SECONDS=0.05, RETRY_DELAYS=[0.5])
    ended = threading.Event()

    def manage() -> int:
        starts = 0
        while not ended.is_set():
            starts += 1
            child = spawn(HANGING)
            while not ended.is_set() and child.process.poll() is None:
                time.sleep(0.05)
            child.close()
        return starts

    send("orders", 1)
    manager = in_thread(manage)
    wait_for(Consumer.objects.exists, "the first process")
    stop_at = time.monotonic() + 15
    while time.monotonic() < stop_at:
        send("payments", 1)
        time.sleep(0.02)  # the pace of the producer
    sent = Message.objects.filter(partition__topic__name="payments").count()
    done = Delivery.objects.filter(group__name="good", state=State.DONE)

    def handled() -> int:
        return sum(one.last_offset + 1 - one.first_offset for one in done.all())

    wait_for(lambda: handled() == sent, handled)
    ended.set()
    assert manager.result(60) > 1
    ends = sorted((one.last_offset, one.finished_at) for one in done)
    created = Message.objects.filter(partition__topic__name="payments").order_by("offset")
    waits = sorted(
        next(end for last, end in ends if last >= (offset or 0)) - at
        for offset, at in created.values_list("offset", "created_at")
    )
    p99 = waits[len(waits) * 99 // 100]
    print(f"{len(waits)} messages: median {waits[len(waits) // 2]}, p99 {p99}, most {waits[-1]}")
    assert p99 < timedelta(seconds=5)
