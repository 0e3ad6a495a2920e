"""A process counts what it does where somebody scrapes it, and nothing otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from streams import (
    Decision,
    Outgoing,
    Reject,
    SendOutcomeUnknown,
    consumer,
    prepared,
    send,
    send_many,
    telemetry,
)
from streams.consume import registry
from streams.consume.outcome.any_order import Ends, settle_any_order
from streams.database.retrying import retrying
from streams.errors import LeaseLost, StreamsError
from streams.log.sequencer import sequence
from streams.metrics import REGISTRY, process
from streams.metrics.catalogue import PROCESS
from streams.metrics.histogram import QuickHistogram
from streams.models import ConsumerGroup, Delivery, Message, SystemConfig, Topic, UtcNow
from streams.testing import drain
from tests.consuming import Process
from tests.metrics.scraped import collected, value
from tests.preparing import answering, held
from tests.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

Change = Callable[..., float]


@pytest.fixture
def change(request: pytest.FixtureRequest) -> Iterator[Change]:
    """Count in this process; return by how much a series has changed since the test began."""
    before = collected(REGISTRY)
    process.start()

    def since(name: str, **labels: str) -> float:
        now = value(collected(REGISTRY), name, **labels) or 0.0
        return now - (value(before, name, **labels) or 0.0)

    yield since
    process.stop()


def group(**options: Any) -> dict[str, str]:
    (one,) = registry.registrations()
    return {"topic": one.topic, "group": one.group}


def test_a_process_that_nobody_scrapes_counts_nothing() -> None:
    before = collected(REGISTRY)
    assert telemetry.observers == ()
    send("orders", 1)
    assert collected(REGISTRY) == before


def test_sends_are_counted_by_topic_and_outcome(change: Change) -> None:
    send("orders", 1)
    send_many([Outgoing("orders", 1), Outgoing("orders", 2), Outgoing("goods", 3)])
    send("orders", 1, dedup_key="k")
    send("orders", 1, dedup_key="k")
    assert change("ems_sent_messages_total", topic="orders", outcome="sent") == 4
    assert change("ems_sent_messages_total", topic="orders", outcome="duplicate") == 1
    assert change("ems_sent_messages_total", topic="goods", outcome="sent") == 1
    assert change("ems_send_seconds_count", topic="orders") == 4


def test_prepares_and_commits_are_counted(change: Change, caplog: pytest.LogCaptureFixture) -> None:
    answering(Decision.UNKNOWN)
    for key in ("A1", "A2", "A3", "A4"):
        made = held(key)
    held("A4")
    for key in ("A1", "A2", "A3"):
        prepared("shop", key).commit()
    made.rollback()
    with pytest.raises(StreamsError):
        held("A5", checker="nobody")
    assert change("ems_prepares_total", topic="orders", outcome="prepared") == 4
    assert change("ems_prepares_total", topic="orders", outcome="repeated") == 1
    assert change("ems_prepares_total", topic="orders", outcome="error") == 1
    assert change("ems_sent_messages_total", topic="orders", outcome="sent") == 3
    assert "Telemetry failed" not in caplog.text


def test_a_failed_send_is_counted_and_raised(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    send("orders", 1)
    with pytest.raises(StreamsError):
        send("orders", object())
    assert change("ems_sent_messages_total", topic="orders", outcome="error") == 1

    def lost(*args: Any) -> Any:
        raise OperationalError(2013, "lost")

    monkeypatch.setattr("streams.produce.send.kept_cursor", lost)
    monkeypatch.setattr("streams.produce.send._translated", lambda *args: SendOutcomeUnknown())
    with pytest.raises(SendOutcomeUnknown):
        send("orders", 1)
    assert change("ems_sent_messages_total", topic="orders", outcome="unknown") == 1


def test_names_of_topics_that_do_not_exist_make_no_series(change: Change) -> None:
    SystemConfig.objects.create(name="autoCreateTopic", value=False)
    for number in range(3):
        with pytest.raises(StreamsError):
            send(f"typo-{number}", 1)
    assert change("ems_sent_messages_total", topic="", outcome="error") == 3
    topics = {labels["topic"] for labels, _ in collected(REGISTRY)["ems_sent_messages_total"]}
    assert not [topic for topic in topics if topic.startswith("typo")]


def test_what_became_of_messages_is_counted_once_each(change: Change) -> None:
    @consumer("orders", group="mail", tags=["a"])
    def mail(message):
        if message.body == 1:
            raise ValueError("comes back")
        if message.body == 2:
            raise Reject("odd")

    running = Process("mail")
    send_many([Outgoing("orders", n, tag="a") for n in range(4)])
    send("orders", 5, tag="b")
    running.run_until_idle()
    found = {
        outcome: change("ems_handled_messages_total", **group(), outcome=outcome)
        for outcome in ("done", "failed", "dead", "missing", "passed", "released")
    }
    assert found == {
        "done": 2,
        "failed": 1,
        "dead": 1,
        "missing": 0,
        "passed": 1,
        "released": 0,
    }
    assert change("ems_handler_seconds_count", **group()) == 4
    assert change("ems_delivery_seconds_count", **group()) == 4
    assert change("ems_claims_total", **group(), kind="new") == 1
    assert change("ems_claim_seconds_count", **group(), kind="new") == 1
    assert change("ems_settle_seconds_count", **group(), kind="new") >= 1
    assert change("ems_sequencer_messages_total") == 5
    assert change("ems_sequencer_pass_seconds_count") == 1


def test_the_time_from_send_to_handler_is_that_of_the_database(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer("orders", group="mail")(lambda message: None)
    running = Process("mail")
    send("orders", 1)
    Message.objects.update(created_at=UtcNow(-timedelta(seconds=90)))
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)  # the clock of this host is wrong
    monkeypatch.setattr(process._observer._clock, "_known", {})
    running.run_until_idle()
    assert change("ems_delivery_seconds_sum", **group()) == pytest.approx(90, abs=20)


def test_another_attempt_is_no_delivery_time(change: Change) -> None:
    @consumer("orders", group="mail", retry=[0.001])
    def mail(message):
        if message.attempt == 1:
            raise ValueError("again")

    running = Process("mail")
    send("orders", 1)
    running.run_until_idle()
    wait_for(lambda: running.worker.step() or change("ems_handler_seconds_count", **group()) == 2)
    assert change("ems_claims_total", **group(), kind="retry") == 1
    assert change("ems_delivery_seconds_count", **group()) == 1


def test_deliveries_that_are_settled_in_any_order_are_observed_once_each(
    change: Change, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_failed_at", float("-inf"))
    consumer("orders", group="mail", start="earliest")(lambda message: None)
    running = Process("mail")
    send_many([Outgoing("orders", n) for n in range(6)])
    sequence("default")
    held = [running.claim(2) for _ in range(3)]
    Delivery.objects.filter(pk=held[2].pk).update(token="stolen")
    ends = [Ends(held[0], 0b1), Ends(held[1], 0b11), Ends(held[2], 0b1)]
    assert settle_any_order(ends, "default") == [held[2]]
    assert change("ems_settle_seconds_count", **group(), kind="new") == 2
    assert "Telemetry failed" not in caplog.text


def id_of_a_deleted_group(using: str, **values: Any) -> int:
    topic_id = Topic.objects.using(using).get().pk
    group = ConsumerGroup.objects.using(using).create(topic_id=topic_id, name="gone", **values)
    ConsumerGroup.objects.using(using).filter(pk=group.pk).delete()
    return group.pk


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_groups_on_several_databases_are_counted_under_their_own_names(
    change: Change, ems_settings: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    settings.DATABASE_ROUTERS = ["streams.routers.StreamsRouter"]
    consumer("orders", group="mail")(lambda message: None)
    consumer("clicks", group="count")(lambda message: None)
    send("orders", 1)
    send("clicks", 1, using="other")
    newest = max(id_of_a_deleted_group(alias) for alias in ("default", "other"))
    for alias in ("default", "other"):  # the next one gets the same id on both
        id_of_a_deleted_group(alias, pk=newest + 1)
    drain("mail")
    drain("count")
    send("clicks", 2, using="other")
    drain("count")
    assert ConsumerGroup.objects.get().pk == ConsumerGroup.objects.using("other").get().pk
    assert change("ems_claims_total", topic="orders", group="mail", kind="new") == 1
    assert change("ems_claims_total", topic="clicks", group="count", kind="new") == 2
    assert "Telemetry failed" not in caplog.text


def test_a_lost_lease_is_counted(change: Change) -> None:
    @consumer("orders", group="mail")
    def mail(message):
        Delivery.objects.update(token="stolen")

    running = Process("mail")
    send("orders", 1)
    running.run_until_idle()
    assert change("ems_leases_lost_total", **group()) == 1


def test_work_that_is_repeated_is_counted_by_its_reason(change: Change) -> None:
    errors = [OperationalError(1213, "deadlock"), OperationalError(3024, "too long")]

    def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert retrying(work, "default") == "done"
    assert change("ems_transactions_repeated_total", reason="lock") == 1
    assert change("ems_transactions_repeated_total", reason="interrupted") == 1


def test_telemetry_that_fails_changes_no_outcome(
    change: Change, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(telemetry, "_failed_at", float("-inf"))
    monkeypatch.setattr(process.ProcessMetrics, "_child", broken)
    handled: list[Any] = []
    consumer("orders", group="mail")(handled.append)
    running = Process("mail")
    with transaction.atomic():
        send("orders", 1)
        send("orders", 2)
    running.run_until_idle()
    assert [message.body for message in handled] == [1, 2]
    events = [getattr(record, "ems_event", "") for record in caplog.records]
    assert events.count("telemetry.failed") == 1  # not one for each message


def test_labels_are_those_of_the_catalogue(change: Change) -> None:
    consumer("orders", group="mail")(lambda message: None)
    running = Process("mail")
    send("orders", 1)
    running.run_until_idle()
    exported = {name: metric for metric in PROCESS.values() for name in metric.exported}
    for name, series in collected(REGISTRY).items():
        if name.endswith("_created"):
            continue
        for labels, _value in series:
            assert set(labels) - {"le"} == set(exported[name].labels), name


def test_a_claim_whose_lease_has_ended_is_no_claim(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer("orders", group="mail")(lambda message: None)
    running = Process("mail")
    send("orders", 1)
    sequence("default")

    def lost(*args: Any) -> Any:
        raise LeaseLost

    monkeypatch.setattr("streams.deliver.claim.Claimer._adopting", lost)
    running.worker.step()
    assert change("ems_claims_total", **group(), kind="new") == 0


def test_the_quick_histogram_counts_as_that_of_the_client() -> None:
    metric = PROCESS["ems_handler_seconds"]
    quick, registry = QuickHistogram(metric), CollectorRegistry()
    options: dict[str, Any] = {"buckets": metric.buckets, "registry": registry}
    general = Histogram(metric.name, metric.help, metric.labels, **options)
    for seconds in (-1.0, 0.0, 0.001, 0.0011, 0.5, 60.0, 61.0, 1e9):
        quick.labels("orders", "mail").observe(seconds)
        general.labels("orders", "mail").observe(seconds)

    def lines(*collectors: Any) -> list[str]:
        made = CollectorRegistry(support_collectors_without_names=True)
        made.register(*collectors)
        text = generate_latest(made).decode().splitlines()
        return [line for line in text if "_created" not in line]

    assert lines(quick) == lines(registry)


def test_threads_that_observe_at_once_lose_nothing() -> None:
    one = QuickHistogram(PROCESS["ems_handler_seconds"]).labels("orders", "mail")

    def observe() -> None:
        for _ in range(5_000):
            one.observe(0.25)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    buckets, total = one.read()
    assert (buckets[-1], total) == (("+Inf", 20_000), 5_000)
