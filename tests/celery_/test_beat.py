"""Celery beat and a worker, as processes: the time-driven steps without any consumer."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from streams import consumer, send
from streams.consume import registry
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
    Step,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.testing import advance, drain
from tests.celery_.conftest import Celery
from tests.processes import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.redis,
    pytest.mark.slow,
]

MINUTE = timedelta(minutes=1)
DATABASE_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"


@pytest.fixture
def seen() -> list[int]:
    """What the group has handled: it is consumed only when the test says drain()."""
    handled: list[int] = []

    def handle(message):
        handled.append(message.body)

    consumer("orders", group="mail")(handle)
    return handled


def group() -> ConsumerGroup:
    return subscribe(registry.find("orders", "mail"), "default", "earliest")  # type: ignore[arg-type]


def claimed_and_left(client: str = "gone") -> Delivery:
    """A message in the hands of a consumer that is no more."""
    send("orders", 1)
    sequence("default")
    delivery = Claimer(group(), client, "thread", "default").claim(1, MINUTE)
    assert delivery
    return delivery


def without_attempts() -> RetryMessage:
    """A retry beyond the retries that its group has now."""
    send("orders", 2)
    sequence("default")
    delivery = Claimer(group(), "gone", "thread", "default").claim(1, MINUTE)
    assert delivery
    Delivery.objects.filter(pk=delivery.pk).update(state=State.RETRY, failed=1, progress=2)
    ConsumerGroup.objects.update(max_retries=3)
    return RetryMessage.objects.create(
        group=group(), partition=delivery.partition, offset=1, attempt=5, due_at=UtcNow()
    )


@pytest.mark.parametrize(
    "scheduler", ["", pytest.param(DATABASE_SCHEDULER, marks=pytest.mark.exhaustive)]
)
def test_beat_alone_moves_the_log_and_the_ladder(
    seen: list[int], celery: Celery, scheduler: str
) -> None:
    if scheduler:
        call_command("ems_sync_schedules", stdout=StringIO())
    celery.worker()
    celery.beat(scheduler)
    left = claimed_and_left()
    without_attempts()
    send("orders", 3)
    wait_for(lambda: not Message.objects.inbox().exists())
    wait_for(lambda: Delivery.objects.get(pk=left.pk).state == State.RETRY)
    assert RetryMessage.objects.get(offset=0).attempt == 2
    wait_for(lambda: DeadMessage.objects.exists())
    assert DeadMessage.objects.get().offset == 1
    assert {"sequence", "sweep", "retries"} <= set(Step.objects.values_list("name", flat=True))
    advance(MINUTE)
    drain()
    assert sorted(seen) == [1, 3]
    assert audit("default") == []


@pytest.mark.exhaustive
def test_beat_and_worker_stopped_and_started_again_lose_nothing(
    seen: list[int], celery: Celery
) -> None:
    group()
    worker, beat = celery.worker(), celery.beat()
    for number in range(20):
        send("orders", number)
    wait_for(lambda: not Message.objects.inbox().exists())
    worker.terminate()
    beat.kill()
    for number in range(20, 40):
        send("orders", number)
    worker.wait()
    for number in range(40, 60):
        send("orders", number)
    assert Message.objects.inbox().exists()
    celery.worker()
    celery.beat()
    wait_for(lambda: not Message.objects.inbox().exists())
    drain()
    assert sorted(seen) == list(range(60))
    assert audit("default") == []


@pytest.mark.exhaustive
def test_of_two_workers_one_takes_an_expired_delivery(seen: list[int], celery: Celery) -> None:
    workers = celery.worker(), celery.worker()
    celery.beat()
    celery.beat()  # one too many: a step may be asked for twice, and at the same time
    left = [claimed_and_left() for _ in range(5)]
    for child in workers:
        child.expect("ems.sequence")
    wait_for(lambda: RetryMessage.objects.count() == len(left))
    for child in workers:
        child.terminate()
    for child in workers:
        child.wait()
    assert sum(child.text().count("has expired") for child in workers) == len(left)
    assert set(RetryMessage.objects.values_list("attempt", flat=True)) == {2}
