"""Processes that do not know a group's consumer, of another project or without its app: they
sweep for it and step its retries, and judge nothing.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import consumer, send
from streams.consume import registry
from streams.models import ConsumerGroup, DeadMessage, Delivery, RetryMessage, UtcNow
from streams.steps.retries import step_retries
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

# Beyond the 16 retries that groups have by default, within those of this one.
LATE = 20


@pytest.fixture
def patient() -> list[int]:
    """A group with a hundred retries, whose message comes to its 20th attempt now."""
    attempts: list[int] = []

    @consumer("orders", group="patient", max_retries=100)
    def handle(message):
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise ValueError("not yet")

    send("orders", 1)
    drain("patient")
    RetryMessage.objects.update(attempt=LATE, due_at=UtcNow(timedelta(seconds=-1)))
    return attempts


@pytest.fixture
def stranger(monkeypatch):
    """Call it, and this is a process in which nobody has registered the consumer."""
    return lambda: monkeypatch.setattr(registry, "_registered", {})


def test_a_stranger_does_not_bury_what_is_due(patient, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        assert step_retries("default") == 0
    assert RetryMessage.objects.get().attempt == LATE
    assert drain("patient").done == 1
    assert patient == [1, LATE]


def test_a_stranger_sweeps_and_does_not_bury(patient, monkeypatch):
    delivery, _row = Process("patient").claim_retry()
    delivery.start(timedelta(seconds=60))
    advance(LONG_AFTER)
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        assert sweep("default") == 1
    assert not DeadMessage.objects.exists()
    row = RetryMessage.objects.get()
    assert (row.attempt, row.delivery_id) == (LATE + 1, None)
    advance(LONG_AFTER)
    assert drain("patient").done == 1
    assert patient == [1, LATE + 1]


def test_a_stranger_buries_what_an_admin_has_limited(patient, stranger):
    """That is in the database, for all to see."""
    ConsumerGroup.objects.update(max_retries=5)
    stranger()
    assert step_retries("default") == 1
    assert DeadMessage.objects.get().attempts == LATE - 1


def test_who_knows_the_consumer_buries_at_once(patient):
    RetryMessage.objects.update(attempt=102)
    assert step_retries("default") == 1
    assert DeadMessage.objects.get().attempts == 101
    assert Delivery.objects.open().count() == 0
