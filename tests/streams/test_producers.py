"""The list of producers: who has sent lately, from where, as the newest messages say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams import send
from streams.database.clock import database_now
from streams.log.sequencer import sequence
from streams.models import Message, Partition, Topic, UtcNow
from streams.observe import producers as producing
from streams.observe.producers import LATELY, Producer, producers
from streams.operate.topics import create
from streams.produce.identity import acting_for
from tests.commands.conftest import parsed, run  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db


def sent(name: str, topic: str = "orders", messages: int = 1, **options: Any) -> None:
    with acting_for(name):
        for number in range(messages):
            send(topic, number, **options)


def listed(topic: str | None = None) -> list[Producer]:
    sequence("default")
    chosen = Topic.objects.get(name=topic).pk if topic else None
    return producers("default", database_now("default"), chosen).listed


def told(found: list[Producer]) -> dict[tuple[str, str], tuple[int, list[str], int]]:
    return {(one.host, one.process): (one.threads, one.topics, one.messages) for one in found}


def test_nobody_has_sent_in_an_empty_database() -> None:
    assert listed() == []


def test_the_threads_of_a_process_are_one_producer_whatever_they_send_to() -> None:
    create("bills", 3, "default")
    sent("10.0.0.1@7@MainThread", messages=3)
    sent("10.0.0.1@7@worker-1", "bills", messages=4)
    sent("10.0.0.1@8@MainThread")
    sent("10.0.0.2@7@MainThread")
    assert told(listed()) == {
        ("10.0.0.1", "7"): (2, ["bills", "orders"], 7),
        ("10.0.0.1", "8"): (1, ["orders"], 1),
        ("10.0.0.2", "7"): (1, ["orders"], 1),
    }
    assert told(listed("bills")) == {("10.0.0.1", "7"): (1, ["bills"], 4)}


def test_who_sends_over_http_is_a_token_at_an_address() -> None:
    sent("http:ab12cd@10.1.1.1@ems-http_0")
    sent("http:ab12cd@10.1.1.1@ems-http_1")
    sent("http:ab12cd@10.1.1.2@ems-http_0")
    sent("nobody")
    sent("10.0.0.1@7@a@b")
    assert told(listed()) == {
        ("10.1.1.1", "http:ab12cd"): (2, ["orders"], 2),
        ("10.1.1.2", "http:ab12cd"): (1, ["orders"], 1),
        ("nobody", ""): (1, ["orders"], 1),
        ("10.0.0.1", "7"): (1, ["orders"], 1),
    }


def test_who_has_sent_last_comes_first_and_who_has_not_for_a_while_is_not_there() -> None:
    for host in ("first", "gone", "last"):
        sent(f"{host}@1@MainThread")
    sequence("default")
    rows = Message.objects.all()
    rows.filter(producer__startswith="first").update(created_at=UtcNow(-timedelta(minutes=1)))
    rows.filter(producer__startswith="gone").update(created_at=UtcNow(-LATELY * 2))
    assert [one.host for one in listed()] == ["last", "first"]
    Partition.objects.update(last_sequenced_at=UtcNow(-LATELY * 2))
    assert listed() == []


def test_a_delayed_message_counts_when_it_is_due() -> None:
    sent("10.0.0.1@7@MainThread", delay=60)
    assert listed() == []


def test_it_reads_the_newest_messages_by_index_in_two_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producing, "NEWEST", 10)
    monkeypatch.setattr(producing, "NEWEST_IN_ALL", 12)
    sent("old@1@MainThread", messages=5)
    sent("new@1@MainThread", messages=10)
    assert told(listed()) == {("new", "1"): (1, ["orders"], 10)}
    for number in range(4):
        sent("new@1@MainThread", f"topic-{number}", messages=3)
    sequence("default")
    with CaptureQueriesContext(connection) as captured:
        now = database_now("default")
        found = producers("default", now)
    assert found.newest == 2  # of each of five partitions
    assert told(found.listed) == {
        ("new", "1"): (1, ["orders", *(f"topic-{n}" for n in range(4))], 10)
    }
    assert len([q for q in captured if "namespace" not in q["sql"]]) <= 4  # the clock, namespaces


def test_the_command_shows_them_for_people_and_for_programs(
    run: Callable[..., str],  # noqa: F811
    parsed: Callable[..., Any],  # noqa: F811
) -> None:
    sent("10.0.0.1@7@MainThread", messages=2)
    sent("10.0.0.1@7@worker", "bills")
    sequence("default")
    head, row = run("ems_topics", "producers").splitlines()
    assert head.split() == ["host", "process", "threads", "topics", "messages", "last_sent_at"]
    assert row.split()[:6] == ["10.0.0.1", "7", "2", "bills,", "orders", "3"]
    (one,) = parsed("ems_topics", "producers", "orders")
    assert (one["process"], one["topics"], one["messages"]) == ("7", ["orders"], 2)
    assert one["last_sent_at"].endswith("Z")
