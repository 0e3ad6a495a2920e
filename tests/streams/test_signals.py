"""Signals: what a project is told, once it is committed, and what a receiver may do wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from streams import Outgoing, Reject, Retry, consumer, send, send_many, signals
from streams.log.sequencer import sequence
from streams.models import (
    Consumer,
    ConsumerGroup,
    DeadMessage,
    Message,
    RetryMessage,
    Topic,
    UtcNow,
)
from streams.operate.acts.act import Consent
from streams.operate.acts.pause import Pause
from streams.operate.topics import create
from streams.retain.purge import Purge
from streams.steps.retries import step_retries
from streams.steps.sweep import sweep
from streams.testing import drain
from tests.consuming import Process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

NAMES = (
    *("message_failed", "message_dead", "message_missing"),
    *("delivery_expired", "group_paused", "topic_created", "act_done", "purge_forced"),
)


class Told(list[tuple[str, dict[str, Any]]]):
    """What was sent, in order; and whether EMS had a transaction open meanwhile."""

    in_a_transaction = False

    def names(self) -> list[str]:
        return [name for name, _values in self if name != "topic_created"]

    def one(self, name: str) -> dict[str, Any]:
        (values,) = [values for found, values in self if found == name]
        return values


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    receivers = []
    for name in NAMES:

        def receive(sender: Any, signal: Any, name: str = name, **values: Any) -> None:
            told.in_a_transaction |= connection.in_atomic_block
            told.append((name, values))

        getattr(signals, name).connect(receive)
        receivers.append((name, receive))
    yield told
    for name, receive in receivers:
        getattr(signals, name).disconnect(receive)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_failure_says_what_when_and_how_soon(told: Told, ordered: bool, atomic: bool) -> None:
    @consumer("orders", group="mail", ordered=ordered, atomic=atomic)
    def handle(message):
        raise Retry("later", delay=60)

    send("orders", 1)
    drain()
    values = told.one("message_failed")
    error, retry_in = values.pop("error"), values.pop("retry_in")
    assert isinstance(error, Retry)
    assert retry_in.total_seconds() == 60
    place = {"topic": "orders", "partition": 0, "offset": 0, "group": "mail"}
    assert values == {**place, "attempt": 1, "using": "default"}
    assert told.names() == ["message_failed"]
    assert not told.in_a_transaction


@pytest.mark.parametrize("atomic", [False, True])
def test_a_death_is_one_signal_and_one_error_for_who_collects_them(
    told: Told, atomic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @consumer("orders", group="mail", atomic=atomic)
    def handle(message):
        raise Reject("never")

    send("orders", 1)
    drain()
    values = told.one("message_dead")
    assert (values["topic"], values["offset"], values["attempt"]) == ("orders", 0, 1)
    assert told.names() == ["message_dead"]
    assert DeadMessage.objects.count() == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert not record.exc_info  # the handler asked for it: one line says all
    assert "rejected orders/0@0 after attempt 1: never; it is a dead letter" in record.getMessage()
    values = {name: value for name, value in vars(record).items() if name.startswith("ems_")}
    place = {"ems_topic": "orders", "ems_partition": 0, "ems_offset": 0, "ems_group": "mail"}
    assert values == {
        **place,
        "ems_event": "message.dead",
        "ems_attempt": 1,
        "ems_error": "Reject",
    }


def test_what_a_batch_says_has_failed_is_told_one_by_one(told: Told) -> None:
    @consumer("orders", group="mail", batch=10, atomic=True)
    def handle(messages):
        return {messages[1]: ValueError("no"), messages[2]: Reject("never")}

    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    assert [(name, values["offset"]) for name, values in told if "offset" in values] == [
        ("message_failed", 1),
        ("message_dead", 2),
    ]
    assert not told.in_a_transaction


def test_what_was_rolled_back_is_not_told(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch said that one had failed, and then its transaction could not be committed."""

    def fail() -> None:
        monkeypatch.undo()  # the next commit is one
        raise OperationalError(1213, "Deadlock found")

    @consumer("orders", group="mail", batch=10, atomic=True)
    def handle(messages):
        monkeypatch.setattr(connection, "commit", fail)
        return {messages[0]: Reject("never")}

    send_many([Outgoing("orders", n) for n in range(2)])
    drain()
    assert told.names() == ["message_failed", "message_failed"]
    assert not DeadMessage.objects.exists()


def test_a_receiver_that_raises_is_logged_and_harms_nothing(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    def receiver(**values: Any) -> None:
        raise RuntimeError("a bug in a receiver")

    @consumer("orders", group="mail")
    def handle(message):
        if message.body == 0:
            raise Retry(delay=3600)

    signals.message_failed.connect(receiver)
    try:
        send_many([Outgoing("orders", n) for n in range(3)])
        assert drain().done == 2
    finally:
        signals.message_failed.disconnect(receiver)
    assert RetryMessage.objects.count() == 1
    assert "a bug in a receiver" in caplog.text


def test_an_expired_claim_is_told_and_so_is_the_death_that_it_causes(told: Told) -> None:
    consumer("orders", group="mail", max_retries=0)(print)
    send("orders", 1)
    process = Process("mail")
    sequence("default")
    delivery = process.claim(1)
    delivery.start(timedelta(0))
    Consumer.objects.all().delete()
    assert sweep("default") == 1
    values = told.one("delivery_expired")
    assert (values["first_offset"], values["last_offset"]) == (0, 0)
    assert (values["client_id"], values["group"]) == (delivery.client_id, "mail")
    assert type(told.one("message_dead")["error"]).__name__ == "ProcessDied"
    assert not told.in_a_transaction


def test_a_retry_without_an_attempt_left_is_told_as_dead(told: Told) -> None:
    @consumer("orders", group="mail", max_retries=3)
    def handle(message):
        raise Retry(delay=60)

    send("orders", 1)
    drain()
    told.clear()
    RetryMessage.objects.update(attempt=5, due_at=UtcNow())
    assert step_retries("default") == 1
    values = told.one("message_dead")
    assert (values["offset"], values["attempt"], values["partition"]) == (0, 4, 0)


def test_messages_that_are_gone_are_told_once(told: Told) -> None:
    consumer("orders", group="mail")(print)
    drain()  # the group begins here
    send_many([Outgoing("orders", n) for n in range(4)])
    sequence("default")
    Message.objects.filter(offset__in=[1, 2]).delete()
    Topic.objects.get().partitions.update(first_offset=3)
    drain()
    assert told.one("message_missing")["offsets"] == (1, 2)
    assert told.names() == ["message_missing"]


def test_a_broadcast_group_tells_a_failure_and_goes_on(told: Told) -> None:
    @consumer("prices", group="cache", mode="broadcast")
    def handle(message):
        raise ValueError("no")

    drain()
    send("prices", 1)
    drain()
    values = told.one("message_failed")
    assert (values["retry_in"], values["offset"], values["group"]) == (None, 0, "cache")


def test_a_topic_is_told_once_it_is_there(told: Told) -> None:
    send("orders", 1)
    send("orders", 2)
    create("bills", 3, "default")
    created = [values["topic"] for name, values in told if name == "topic_created"]
    assert created == ["orders", "bills"]


def test_a_group_that_was_running_is_told_as_paused_after_the_commit(told: Told) -> None:
    for name in ("mail", "shop"):
        consumer("orders", group=name)(print)
    drain()
    ConsumerGroup.objects.filter(name="shop").update(paused=True)
    with transaction.atomic():
        assert ConsumerGroup.objects.all().pause() == 1
        assert "group_paused" not in told.names()
    assert told.one("group_paused") == {"topic": "orders", "group": "mail", "using": "default"}
    assert not told.in_a_transaction


def test_a_pause_that_was_rolled_back_is_not_told(told: Told) -> None:
    consumer("orders", group="mail")(print)
    drain()
    with transaction.atomic():
        ConsumerGroup.objects.all().pause()
        transaction.set_rollback(True)
    assert told.names() == []


def test_an_act_is_told_after_the_commit_with_who_and_what(told: Told) -> None:
    consumer("orders", group="mail")(print)
    drain()
    group = ConsumerGroup.objects.get()
    with transaction.atomic():
        Pause().carry_out(group, "default", Consent("mei"))
        assert "act_done" not in told.names()
    Pause().carry_out(group, "default", Consent("mei"))  # which changes nothing
    values = {"act": "pause", "row": group, "texts": ["paused"], "who": "mei", "using": "default"}
    assert told.one("act_done") == values
    assert not told.in_a_transaction


def test_a_forced_purge_is_told_with_what_groups_skip(told: Told) -> None:
    consumer("orders", group="mail")(print)
    drain()
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    Topic.objects.update(retention_count=1)
    Purge("default", force=True).run()
    assert told.one("purge_forced") == {
        "topic": "orders",
        "partition": 0,
        "using": "default",
        "messages": 2,
        "deliveries": 0,
        "retries": 0,
    }
