"""Celery unchanged on EMS: what is sent in a transaction, and what workers do with it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, OperationalError, connections, transaction
from kombu import Exchange, Queue

from streams import send
from streams.celery import control, purging, supply
from streams.celery.engine import Engine
from streams.celery.naming import Naming
from streams.celery.supply import Supply
from streams.deliver.opening import Opened, open_whole
from streams.errors import ConfigurationError, StreamsError, WrongDatabase
from streams.models import Delivery, Message, RetryMessage, State, UtcNow
from streams.observe.audit.walk import audit
from streams.testing import advance
from tests.celery_.broker import broker, ran, record
from tests.celery_.features import FEATURES
from tests.celery_.workers import Pool
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


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


def test_a_cold_shutdown_counts_what_runs_as_an_attempt(pool: Pool) -> None:
    for name in ("runs", "waits"):
        record.delay(name, seconds=60)
    child = pool.worker("-c", "1")
    wait_for(lambda: ran("runs"), child.text)
    child.send_signal(signal.SIGQUIT)
    child.wait()
    assert not Delivery.objects.held().exists()
    assert [*RetryMessage.objects.values_list("offset", "attempt")] == [(0, 2)], child.text()
    assert not ran("waits")
    assert audit("default") == []


def test_a_message_shows_what_people_look_for() -> None:
    sent = record.delay("shown", seconds=0.5)
    row = Message.objects.get(partition__topic__name="celery.celery")
    assert row.tag == "tests.celery_.broker.record"
    assert row.key == sent.id
    assert (row.headers or {})["task"] == row.tag
    assert broker.conf.broker_url == "ems://"


def test_what_has_an_eta_waits_in_the_inbox() -> None:
    record.apply_async(["later"], countdown=3600)
    row = Message.objects.get(partition__topic__name="celery.celery")
    assert timedelta(minutes=59) < row.due_at - row.created_at < timedelta(minutes=61)


def test_an_error_of_the_database_is_no_error_of_the_connection() -> None:
    """Kombu would publish again, outside the transaction that has failed."""
    with broker.connection() as connection:
        errors = connection.connection_errors + connection.channel_errors
    assert not any(issubclass(error, errors) for error in (Error, StreamsError))


def test_what_is_given_back_can_be_got_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the thread that writes it has not been woken yet."""
    monkeypatch.setattr(Engine, "_wake_keeper", lambda _self: None)
    with broker.connection() as connection, closing(connection.SimpleQueue("back")) as queue:
        queue.put("it")
        queue.get_nowait().reject(requeue=True)
        queue.get_nowait().ack()


def test_a_claim_that_failed_before_its_messages_were_read_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client lives, so nobody else would take it before an hour is over."""
    failed: list[Delivery] = []

    def open_once(delivery: Delivery, *rest: Any) -> Opened:
        if not failed:
            failed.append(delivery)
            raise OperationalError(2013, "the connection is lost")
        return open_whole(delivery, *rest)

    monkeypatch.setattr(supply, "open_whole", open_once)
    with broker.connection() as connection, closing(connection.SimpleQueue("back")) as queue:
        queue.put("it")
        queue.get(timeout=60).ack()
    assert failed


def test_a_task_in_a_transaction_on_another_database_is_refused() -> None:
    with pytest.raises(WrongDatabase), transaction.atomic(using="other"):
        record.delay("nowhere")


def test_another_process_knows_what_is_bound_to_an_exchange() -> None:
    with broker.connection() as one, broker.connection() as two:
        exchange = Exchange("shop", "topic")
        Queue("orders", exchange, "order.*")(one.channel()).declare()
        two.Producer().publish({"n": 1}, exchange="shop", routing_key="order.new")
    assert Message.objects.filter(partition__topic__name="celery.orders").count() == 1


def test_a_url_names_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Naming.of("other", {}).using == "other"
    with pytest.raises(ConfigurationError, match="no database"):
        Naming.of("nowhere", {})
    with pytest.raises(ConfigurationError, match="priority_steps"):
        Naming.of(None, {"priority_steps": ["high"]})
    monkeypatch.setitem(connections.settings["other"], "AUTOCOMMIT", False)
    with pytest.raises(ConfigurationError, match="AUTOCOMMIT is off in DATABASES\\['other'\\]"):
        Naming.of("other", {})


@pytest.mark.parametrize("pattern", ["celery.*", "celery.orders", "celery.mails.*"])
def test_a_broker_whose_topics_are_on_another_database_must_be_named(
    ems_settings: Callable[..., None], pattern: str
) -> None:
    """Else tasks would be sent where no worker reads."""
    ems_settings(SHARDS={"flights": "other", pattern: "other"})
    with pytest.raises(ConfigurationError, match="ems://other"):
        Naming.of(None, {})
    assert Naming.of("other", {}).using == "other"
    assert Naming.of(None, {"prefix": "tasks"}).using == "default"


def test_what_is_bound_under_tracing_is_known_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages have more headers then."""

    def traced(topic: str, **options: Any) -> Any:
        return send(topic, **{**options, "headers": {**options["headers"], "traceparent": "00-1"}})

    monkeypatch.setattr(control, "send", traced)
    queue = Queue("orders", Exchange("shop", "topic"), "order.*")
    for _process in range(2):
        with broker.connection() as connection:
            queue(connection.channel()).declare()
    assert Message.objects.filter(partition__topic__name="celery:bindings").count() == 1


def test_a_purge_skips_what_has_an_eta_and_what_no_worker_has_seen() -> None:
    record.delay("now")
    record.apply_async(["later"], countdown=3600)
    with broker.connection() as connection:
        channel = connection.default_channel
        assert channel.queue_purge("celery") == 2
        advance(timedelta(hours=2))
        assert channel.basic_get("celery") is None
        record.delay("new")
        assert channel.basic_get("celery") is not None
    assert audit("default") == []


def test_a_purge_skips_what_was_given_back_and_leaves_what_is_in_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(purging, "STEP", 1)
    with broker.connection() as connection:
        channel = connection.default_channel
        Queue("mails")(channel).declare()
        for number in range(6):
            connection.Producer().publish({"n": number}, routing_key="mails")
        held = channel.basic_get("mails")
        for message in [channel.basic_get("mails") for _time in range(2)]:
            message.reject(requeue=True)
        wait_for(lambda: RetryMessage.objects.count() == 2)
        RetryMessage.objects.update(due_at=UtcNow(timedelta(hours=1)))
        mails = Supply("mails", "celery.mails", "default")
        mails.open()
        taken = mails.claim("somebody", 2)
        assert taken is not None
        Delivery.objects.filter(pk=taken.delivery.pk).update(token="")  # as a range is given back
        assert channel.queue_purge("mails") == 5
        assert not RetryMessage.objects.exists()
        assert not Delivery.objects.given_back().exists()
        assert channel.basic_get("mails") is None
        held.ack()
        wait_for(lambda: not Delivery.objects.open().exists())
    assert Delivery.objects.filter(state=State.DONE).count() == 1
    assert audit("default") == []


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
