"""Celery unchanged on EMS: what is sent in a transaction, and what workers do with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import transaction

from streams.models import Delivery, Message, State
from tests.celery_.broker import broker, ran, record
from tests.processes import Child, Spawn, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = """\
import logging, sys
logging.basicConfig(level="INFO", format="%(asctime)s %(message)s", stream=sys.stdout)
from tests.celery_.broker import broker
broker.worker_main(["worker", "-l", "INFO", "-n", "w@test", *sys.argv[1:]])
"""

Worker = Callable[..., Child]


@pytest.fixture
def worker(spawn: Spawn) -> Worker:
    def start(*words: str) -> Child:
        child = spawn(WORKER, *(words or ("-c", "2")))
        child.expect("ready")
        return child

    return start


def test_a_task_commits_with_the_rows_it_is_about(worker: Worker) -> None:
    with transaction.atomic():
        record.delay("committed")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        record.delay("rolled back")
        raise ZeroDivisionError
    record.delay("alone")
    child = worker()
    wait_for(lambda: ran("committed") and ran("alone"), child.text)
    wait_for(lambda: not Delivery.objects.open().exists(), child.text)
    assert set(Delivery.objects.values_list("state", flat=True)) == {State.DONE}
    assert not ran("rolled back")
    child.terminate()
    print(child.succeed())


def test_a_message_shows_what_people_look_for() -> None:
    sent = record.delay("shown", seconds=0.5)
    row = Message.objects.get(partition__topic__name="celery.celery")
    assert row.tag == "tests.celery_.broker.record"
    assert row.key == sent.id
    assert row.headers["task"] == row.tag
    assert broker.conf.broker_url == "ems://"
