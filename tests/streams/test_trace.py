"""The trace of a message: what each group has done with it, and what comes next."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from streams import Outgoing, ReceivedMessage, Reject, consumer, send, send_many
from streams.consume import registry
from streams.consume.outcome.any_order import Ends, settle_any_order
from streams.consume.outcome.dead_letter import redrive
from streams.consume.outcome.settle import settle
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
    UtcNow,
)
from streams.observe.trace import GroupTrace, trace
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import fail, registered
from tests.faults import Once, statements
from tests.sessions import Session

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MINUTE = timedelta(minutes=1)


def group() -> ConsumerGroup:
    return subscribe(registry.find("orders", "mail"), "default", "earliest")  # type: ignore[arg-type]


def traced(offset: int | None = 0) -> GroupTrace:
    (found,) = trace(Message.objects.select_related("partition").get(offset=offset))
    return found


def state(offset: int | None = 0) -> str:
    return traced(offset).state


def test_of_a_broadcast_group_nothing_is_known() -> None:
    consumer("orders", group="mail", mode="broadcast")(print)
    group()
    send("orders", 1)
    assert state(None) == "not sequenced yet"
    sequence("default")
    assert state() == "read by each client for itself"
    drain("mail")
    assert traced() == GroupTrace(group(), state="read by each client for itself")


def test_the_way_of_a_message_that_is_done() -> None:
    consumer("orders", group="mail")(print)
    group()
    send("orders", 1)
    message = Message.objects.get()
    assert message.producer.endswith(f"@{os.getpid()}@{threading.current_thread().name}")
    assert state(None) == "not sequenced yet"
    sequence("default")
    assert state() == "waiting to be claimed"
    delivery = Claimer(group(), "10.0.0.1@7@a", "mail-3", "default").claim(1, MINUTE)
    assert delivery
    assert state() == "being handled"
    settle(delivery, 1, max_retries=1)
    found = traced()
    assert found.state == "done"
    (row,) = found.deliveries
    assert (row.client_id, row.thread, row.attempt) == ("10.0.0.1@7@a", "mail-3", 1)
    assert row.claimed_at <= row.finished_at


@pytest.mark.parametrize("options", [{}, {"ordered": "key", "lanes": 3}], ids=str)
def test_what_is_settled_in_any_order_is_done_while_others_of_its_claim_are_handled(
    options: dict[str, Any],
) -> None:
    consumer("orders", group="mail", **options)(print)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    delivery = Claimer(group(), "c", "t", "default").claim(3, MINUTE)
    assert delivery
    assert settle_any_order([Ends(delivery, 0b110)], "default") == []
    assert [state(n) for n in range(3)] == ["being handled", "done", "done"]
    assert [traced(n).attempts[0].outcome for n in range(3)] == ["being handled", "done", "done"]


def test_the_way_of_a_message_that_fails_dies_is_redriven_and_dies_again() -> None:
    consumer("orders", group="mail", max_retries=1)(fail)
    send("orders", 1)
    drain()
    retry = RetryMessage.objects.get()
    assert state() == f"attempt 2 due at {retry.due_at:%Y-%m-%d %H:%M:%S} UTC"
    advance(MINUTE)
    drain()
    assert state() == "dead"
    redrive(DeadMessage.objects.get())
    assert state().startswith("attempt 1 due at")
    RetryMessage.objects.update(due_at=UtcNow())
    assert Claimer(group(), "client", "thread", "default").claim_retry(MINUTE)
    assert state() == "being handled"
    sweep("default")
    for _ in range(3):
        advance(MINUTE)
        drain()
    found = traced()
    assert found.state == "dead"
    # The third was taken before it was begun: its attempt was not spent.
    assert [d.attempt for d in found.deliveries] == [1, 2, 1, 1, 2]
    assert [bool(letter.redriven_at) for letter in found.dead] == [True, False]


def test_a_discarded_message_is_not_said_to_be_done() -> None:
    @consumer("orders", group="mail", batch=3)
    def handle(messages):
        return {m: Reject("no") for m in messages if m.body != 1}

    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    for letter in DeadMessage.objects.all():
        letter.discard()
    assert state(3) == "discarded"  # alone in its delivery
    assert state(1) == "done"
    assert state(2) == "discarded"
    Delivery.objects.update(errors=None)  # too many to be kept
    assert state(1) == "done, or given up"  # of three, two have died: it is not known which


def test_each_message_of_a_claim_has_its_own_error() -> None:
    """A claim covers several messages: its last error is that of one of them."""

    @consumer("orders", group="mail", max_retries=1)
    def handle(message):
        if message.body != 1:
            raise ValueError(f"no {message.body}")

    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    claim = Delivery.objects.get()
    assert (claim.failed, claim.error) == (3, "ValueError: no 3")

    def told(offset):
        return [(one.outcome, one.error) for one in traced(offset).attempts]

    assert told(0) == [("failed", "ValueError: no 0")]
    assert told(1) == [("done", "")]
    assert told(2) == [("failed", "ValueError: no 2")]
    RetryMessage.objects.update(due_at=UtcNow())
    drain()
    assert told(2) == [("failed", "ValueError: no 2"), ("failed, dead", "ValueError: no 2")]
    Delivery.objects.filter(pk=claim.pk).update(errors=None)  # too many to be kept
    assert told(1) == [("done, or failed", "")]


def test_what_a_claim_keeps_of_its_errors_is_bounded() -> None:
    consumer("orders", group="mail", batch=500)(
        lambda messages: {m: ValueError(f"{m.body:05}" * 60) for m in messages}
    )
    send_many([Outgoing("orders", n) for n in range(500)])
    drain()
    claim = Delivery.objects.get()
    assert claim.failed == 500
    assert claim.errors is None
    assert [one.outcome for one in traced(7).attempts] == ["done, or failed"]
    Delivery.objects.all().delete()
    group_of_errors = Delivery(first_offset=0, last_offset=999, failed=1000)
    group_of_errors.errors = group_of_errors.noted(dict.fromkeys(range(1000), "ValueError: no"))
    assert group_of_errors.failures() == dict.fromkeys(range(1000), "ValueError: no")


@pytest.mark.django_db(transaction=True)
def test_an_atomic_call_that_is_rolled_back_leaves_no_error_of_another_call() -> None:
    @consumer("orders", group="mail", atomic=True)
    def handle(message):
        if message.body % 2:
            raise ValueError(f"no {message.body}")

    send_many([Outgoing("orders", n) for n in range(4)])
    drain()
    assert Delivery.objects.get().failures() == {1: "ValueError: no 1", 3: "ValueError: no 3"}


def test_the_trace_says_how_long_it_waited_and_how_long_it_took() -> None:
    @consumer("orders", group="mail")
    def fail(message):
        raise ValueError

    send("orders", 1)
    drain()
    now = Message.objects.get().sequenced_at
    assert now
    Delivery.objects.update(
        claimed_at=now + timedelta(seconds=4),
        started_at=now + timedelta(seconds=5),
        finished_at=now + timedelta(seconds=8),
    )
    RetryMessage.objects.update(due_at=UtcNow())
    drain()
    first, second = traced().attempts
    assert (first.waited, first.took) == (timedelta(seconds=5), timedelta(seconds=3))
    Delivery.objects.filter(pk=second.delivery.pk).update(
        started_at=None, finished_at=None, state=State.START, claimed_at=now + timedelta(seconds=28)
    )
    second = traced().attempts[1]
    assert (second.waited, second.took) == (timedelta(seconds=20), None)


def test_a_message_whose_body_was_gone_is_not_said_to_be_done() -> None:
    consumer("orders", group="mail")(print)
    send("orders", 1)
    sequence("default")
    message = Message.objects.select_related("partition").get()
    Message.objects.all().delete()
    drain()
    advance(MINUTE)
    drain()
    assert trace(message)[0].state == "missing: its body was gone"


@pytest.mark.parametrize("of", [State.RETRY, State.RELEASED])
def test_a_message_that_is_in_no_table_is_said_to_be_lost(of: State) -> None:
    consumer("orders", group="mail", batch=3)(print)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    delivery = Claimer(group(), "client", "thread", "default").claim(3, MINUTE)
    assert delivery
    Delivery.objects.filter(pk=delivery.pk).update(state=of, progress=2)
    assert [state(n) for n in range(3)] == ["done", "done", "lost: see ems_doctor --audit"]


def test_a_redriven_message_that_is_in_no_table_is_lost_and_not_discarded() -> None:
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    drain()
    redrive(DeadMessage.objects.get())
    RetryMessage.objects.all().delete()
    assert state() == "lost: see ems_doctor --audit"


def test_a_redriven_message_that_died_again_and_was_discarded_is_not_lost() -> None:
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("no")

    send("orders", 1)
    drain()
    redrive(DeadMessage.objects.get())
    DeadMessage.objects.update(redriven_at=UtcNow(-MINUTE))  # SQLite's clock has milliseconds only
    drain()
    DeadMessage.objects.get(redriven_at=None).discard()
    assert state() == "discarded"


def test_what_was_before_a_group_is_not_its_matter() -> None:
    consumer("orders", group="mail", start="latest")(print)
    send("orders", 1)
    sequence("default")
    subscribe(registered("orders", "mail"), "default")
    assert state() == "before the start of the group"


def test_what_was_skipped_is_said_to_be() -> None:
    consumer("orders", group="mail")(print)
    send("orders", 1)
    drain()
    Delivery.objects.update(state=State.SKIPPED)
    assert state() == "skipped"


def test_a_log_that_was_deleted_is_unknown() -> None:
    consumer("orders", group="mail")(print)
    send("orders", 1)
    drain()
    Delivery.objects.all().delete()
    assert state() == "unknown: its log is gone"
    Cursor.objects.update(log_offset=1)
    assert state() == "finished: its log was purged"
    Cursor.objects.all().delete()
    assert state() == "before the start of the group"


def test_a_delivery_of_the_largest_batch_is_found_from_its_last_offset() -> None:
    consumer("orders", group="mail", batch=1000)(print)
    send_many([Outgoing("orders", n) for n in range(1001)])
    drain()
    assert traced(999).deliveries == traced(0).deliveries
    assert traced(1000).deliveries != traced(0).deliveries


def test_groups_come_by_name_and_only_those_of_the_topic() -> None:
    for name in ("shop", "audit", "mail"):
        consumer("orders", group=name)(print)
    consumer("flights", group="radar")(print)
    send("orders", 1)
    send("flights", 1)
    drain()
    found = trace(Message.objects.select_related("partition").filter(key=None)[0])
    assert [one.group.name for one in found] == ["audit", "mail", "shop"]


@pytest.mark.django_db(databases=["default", "other"])
def test_a_message_is_traced_on_its_own_alias() -> None:
    consumer("orders", group="mail")(print)
    send("orders", 1, using="other")
    drain(using="other")
    message = Message.objects.using("other").select_related("partition").get()
    assert trace(message)[0].state == "done"
    assert ConsumerGroup.objects.count() == 0


def fail_once(message: ReceivedMessage) -> None:
    if message.attempt == 1:
        raise ZeroDivisionError


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_a_message_that_moves_while_it_is_traced_is_not_lost(
    second_connection: Callable[[], Session],
) -> None:
    consumer("orders", group="mail")(fail_once)
    send("orders", 1)
    drain()
    other = second_connection()

    def retried_first(read):
        with other.active():
            advance(MINUTE)
            drain()
        return read()

    between = Once("FROM `ems_retry_msg`", retried_first)
    with statements(between):
        assert state().startswith("attempt 2 due at")
    assert between.fired
    assert connection.vendor == "mysql"
    assert state() == "done"
