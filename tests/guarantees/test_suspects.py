"""After a process has died: which messages may have killed it, and run alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Outgoing, consumer, send_many
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import release, settle
from streams.log.sequencer import sequence
from streams.models import Consumer, Kind, RetryMessage
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

A_WHILE = timedelta(minutes=1)
MANY = 5


@pytest.fixture
def process() -> Process:
    consumer("orders", group="mail", batch=10)(print)
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(MANY)])
    sequence("default")
    return process


def die() -> None:
    """The process is killed, and the sweep notices."""
    Consumer.objects.all().delete()
    assert sweep("default") == 1


def alone() -> list[int]:
    rows = RetryMessage.objects.filter(alone=True).order_by("offset")
    return list(rows.values_list("offset", flat=True))


def test_of_a_batch_of_many_none_runs_alone(process: Process) -> None:
    """Alone, a thousand innocents would keep their process from its other groups for hours."""
    process.claim(10)
    die()
    assert RetryMessage.objects.filter(delivery=None).count() == MANY
    assert alone() == []


def again(process: Process) -> int:
    """Begin the next attempt of a retry, and die with it; return its offset."""
    advance(A_WHILE)
    process.client.register()
    delivery, row = process.claim_retry()
    assert (delivery.kind, list(delivery.offsets)) == (Kind.RETRY, [row.offset])
    delivery.start(A_WHILE)
    die()
    return row.offset


def test_they_come_back_one_by_one_and_whichever_dies_again_is_a_suspect(
    process: Process,
) -> None:
    process.claim(10)
    die()
    offset = again(process)
    assert alone() == [offset]


def test_one_death_makes_no_suspect_of_what_ran_by_itself(process: Process) -> None:
    """A kill -9 takes along whatever runs. Twelve calls of 4 s, each alone, would take 48 s."""
    process.claim(1)
    die()
    assert alone() == []
    assert again(process) == 0
    assert alone() == [0]
    assert again(process) == 0
    assert alone() == [0]


def test_nor_does_what_is_left_of_a_batch(process: Process) -> None:
    settle(process.claim(10), MANY - 1, max_retries=16)
    die()
    assert alone() == []
    assert again(process) == MANY - 1
    assert alone() == [MANY - 1]


def test_a_failed_attempt_before_a_death_is_no_death(process: Process) -> None:
    delivery = process.claim(1)
    settle(delivery, 1, [Failure(0, ValueError())], max_retries=16)
    assert again(process) == 0
    assert alone() == []


def test_nor_is_a_failure_in_a_delivery_whose_process_died_later(process: Process) -> None:
    delivery = process.claim(2)
    settle(delivery, 1, [Failure(0, ValueError())], max_retries=16)
    die()
    RetryMessage.objects.exclude(offset=0).delete()
    assert again(process) == 0
    assert alone() == []


def test_a_failed_attempt_between_two_deaths_clears_it(process: Process) -> None:
    process.claim(1)
    die()
    advance(A_WHILE)
    process.client.register()
    delivery, _row = process.claim_retry()
    settle(delivery, 1, [Failure(0, ValueError())], max_retries=16)
    assert again(process) == 0
    assert alone() == []


def test_what_was_given_back_between_two_deaths_changes_nothing(process: Process) -> None:
    process.claim(1)
    die()
    advance(A_WHILE)
    process.client.register()
    delivery, _row = process.claim_retry()
    release(delivery)
    assert again(process) == 0
    assert alone() == [0]


def test_a_retry_that_was_not_begun_is_none(process: Process) -> None:
    process.claim(10)
    die()
    advance(A_WHILE)
    process.client.register()
    process.claim_retry()
    die()
    assert alone() == []
