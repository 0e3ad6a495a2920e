"""After a process has died: which messages may have killed it, and run alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Outgoing, consumer, send_many
from streams.consume.outcome.settle import settle
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


def test_they_come_back_one_by_one_and_whichever_dies_again_is_a_suspect(
    process: Process,
) -> None:
    process.claim(10)
    die()
    advance(A_WHILE)
    process.client.register()
    delivery, row = process.claim_retry()
    assert (delivery.kind, list(delivery.offsets)) == (Kind.RETRY, [row.offset])
    assert row.alone is False
    delivery.start(A_WHILE)
    die()
    assert alone() == [row.offset]


def test_a_batch_of_one_is_a_suspect_at_once(process: Process) -> None:
    process.claim(1)
    die()
    assert alone() == [0]


def test_what_is_left_of_a_batch_is_a_suspect_if_it_is_one(process: Process) -> None:
    settle(process.claim(10), MANY - 1, max_retries=16)
    die()
    assert alone() == [MANY - 1]


def test_a_retry_that_was_not_begun_is_none(process: Process) -> None:
    process.claim(10)
    die()
    advance(A_WHILE)
    process.client.register()
    process.claim_retry()
    die()
    assert alone() == []
