"""Celery unchanged on EMS: what is sent in a transaction, and what workers do with it."""

from __future__ import annotations

import pytest
from django.db import transaction

from streams.models import Delivery, Message, State
from tests.celery_.broker import broker, ran, record
from tests.celery_.features import FEATURES
from tests.celery_.workers import Pool
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_task_commits_with_the_rows_it_is_about(pool: Pool) -> None:
    with transaction.atomic():
        record.delay("committed")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        record.delay("rolled back")
        raise ZeroDivisionError
    record.delay("alone")
    child = pool.worker()
    wait_for(lambda: ran("committed") and ran("alone"), child.text)
    wait_for(lambda: not Delivery.objects.open().exists(), child.text)
    assert set(Delivery.objects.values_list("state", flat=True)) == {State.DONE}
    assert not ran("rolled back")
    child.terminate()
    child.succeed()


def test_a_message_shows_what_people_look_for() -> None:
    sent = record.delay("shown", seconds=0.5)
    row = Message.objects.get(partition__topic__name="celery.celery")
    assert row.tag == "tests.celery_.broker.record"
    assert row.key == sent.id
    assert (row.headers or {})["task"] == row.tag
    assert broker.conf.broker_url == "ems://"


COMMON = ["delay_and_result", "retries", "chains", "revoke", "inspect", "reject"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(COMMON, id="common"),
        pytest.param(list(FEATURES), id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_the_features_of_celery(pool: Pool, names: list[str]) -> None:
    child = pool.worker("-c", "2", "-E", "-Q", "celery,other queue")
    wrong = {}
    for name in names:
        try:
            FEATURES[name]()
        except Exception as error:  # noqa: BLE001 - each is to be tried
            wrong[name] = repr(error)
    assert not wrong, f"{wrong}\n{child.text()}"
    child.terminate()
    child.succeed()
