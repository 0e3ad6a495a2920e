"""The collector gives Prometheus one reading for all scrapers, and never an old one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import transaction
from prometheus_client import CollectorRegistry, generate_latest

from streams import send
from streams.database import each
from streams.metrics import EmsCollector, collector
from tests.metrics.scraped import collected, samples, value

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_registry_reads_nothing_until_it_is_scraped(away: None) -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(EmsCollector())
    assert value(samples(generate_latest(registry).decode()), "ems_up") == 0


def test_each_series_names_its_database() -> None:
    send("orders", 1)
    found = collected(EmsCollector())
    assert value(found, "ems_up", database="default") == 1
    assert value(found, "ems_inbox_messages", database="default", topic="orders") == 1
    assert all("database" in labels for series in found.values() for labels, _value in series)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_aliases_of_all_topics_are_read(ems_settings: Callable[..., None]) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    send("orders", 1)
    send("clicks", 1, using="other")
    one = EmsCollector()
    for _scrape in range(2):  # of one reading
        found = collected(one)
        assert value(found, "ems_inbox_messages", database="default", topic="orders") == 1
        assert value(found, "ems_inbox_messages", database="other", topic="clicks") == 1
        assert len(found["ems_up"]) == 2
    registry = CollectorRegistry()
    registry.register(one)
    text = generate_latest(registry).decode()
    assert text.count("# TYPE ems_inbox_messages") == 1
    assert value(collected(EmsCollector("other")), "ems_up", database="default") is None


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_an_alias_that_is_away_hides_no_other(
    ems_settings: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    send("clicks", 1, using="other")
    request.getfixturevalue("away")
    found = collected(EmsCollector())
    assert value(found, "ems_up", database="default") == 0
    assert value(found, "ems_inbox_messages", database="other", topic="clicks") == 1


def test_scrapers_in_five_seconds_share_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    one = EmsCollector()
    assert value(collected(one), "ems_inbox_messages", topic="orders") is None
    send("orders", 1)
    assert value(collected(one), "ems_inbox_messages", topic="orders") is None
    monkeypatch.setattr(collector, "CACHE_SECONDS", 0)
    assert value(collected(one), "ems_inbox_messages", topic="orders") == 1


def test_without_the_database_only_ems_up_is_told(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(collector, "CACHE_SECONDS", 0)
    send("orders", 1)
    one = EmsCollector()
    assert len(collected(one)) > 5
    request.getfixturevalue("away")
    assert collected(one) == {"ems_up": [({"database": "default"}, 0)]}


def test_a_scrape_leaves_the_transaction_of_its_caller_alone() -> None:
    with transaction.atomic():
        send("orders", 1)
        assert not value(collected(EmsCollector()), "ems_inbox_messages", topic="orders")
    assert value(collected(EmsCollector()), "ems_inbox_messages", topic="orders") == 1


def test_a_database_that_hangs_holds_no_scrape_and_gets_one_reading_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, begun = threading.Event(), threading.Semaphore(0)

    class Hangs:
        def __init__(self, using: str) -> None: ...

        def samples(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
            begun.release()
            assert answers.wait(30)
            yield "ems_up", (), 1

    monkeypatch.setattr(collector, "MetricReading", Hangs)
    monkeypatch.setattr(collector, "WAIT_SECONDS", 0.05)
    one = EmsCollector()
    down = {"ems_up": [({"database": "default"}, 0)]}
    assert [collected(one), collected(one)] == [down, down]
    assert begun.acquire(timeout=10)
    assert not begun.acquire(blocking=False), "a second reading has begun"
    hangs = each._questions[one, "default"]
    hangs.began -= each.FORGOTTEN
    assert collected(one) == down
    assert begun.acquire(timeout=10)
    answers.set()
    for question in hangs, each._questions[one, "default"]:
        question.thread.join(10)
    assert value(collected(one), "ems_up") == 1
