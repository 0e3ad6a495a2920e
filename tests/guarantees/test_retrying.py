"""What becomes of a message whose handler fails: the ladder, then a dead letter. Time is moved in
the rows.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from streams import Outgoing, Reject, Retry, consumer, send, send_many
from streams.conf import LADDER
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    DeadMessage,
    Delivery,
    Kind,
    Message,
    RetryMessage,
    State,
)
from streams.models.retry import Again
from streams.observe.audit.walk import audit
from streams.testing import advance, drain
from tests.consuming import Process
from tests.hostapp.models import Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def fail_with(error, **options):
    """A consumer whose handler always raises ``error``; returns the list of attempts."""
    attempts = []

    @consumer("orders", group="mail", **options)
    def handle(message):
        attempts.append(message.attempt)
        raise error

    return attempts


def drain_to_the_end():
    while RetryMessage.objects.exists() or Message.objects.inbox().exists():
        drain("mail")
        advance(DAY)


def test_the_log_names_the_place_of_what_failed(caplog):
    fail_with(ValueError("no"))
    send("orders", 1)
    drain("mail")
    (record,) = [r for r in caplog.records if "failed on" in r.getMessage()]
    assert "failed on orders/0@0, attempt 1: ValueError: no" in record.getMessage()


# -- the ladder --------------------------------------------------------------------------------


def test_a_message_that_always_fails_has_seventeen_attempts_up_the_ladder_and_is_then_dead():
    attempts = []

    @consumer("orders", group="mail")
    def handle(message):
        attempts.append(message.attempt)
        raise ZeroDivisionError(f"attempt {message.attempt}")

    assert len(LADDER) == 16
    sent = send("orders", b"\x00body\xff", key="k", tag="t", headers={"h": "1"})
    for attempt, step in enumerate(LADDER, 1):
        drain("mail")
        row = RetryMessage.objects.get()
        assert row.attempt == attempt + 1
        assert row.last_error == f"ZeroDivisionError: attempt {attempt}"
        ended = Delivery.objects.latest("id")
        assert (ended.attempt, ended.state) == (attempt, State.RETRY)
        waits = row.due_at - ended.finished_at
        assert 0.8 * step * SECOND <= waits <= 1.2 * step * SECOND + SECOND
        assert not DeadMessage.objects.exists()
        advance(0.7 * step * SECOND)
        assert drain("mail").failed == 0  # not before its time
        advance(0.55 * step * SECOND)
    drain("mail")
    assert attempts == list(range(1, 18))
    assert not RetryMessage.objects.exists()
    advance(DAY)
    assert drain("mail").failed == 0

    letter = DeadMessage.objects.get()
    assert (letter.attempts, letter.message_id, letter.offset) == (17, sent.message_id, 0)
    assert (bytes(letter.body), letter.body_type) == (b"\x00body\xff", "bytes")
    assert (letter.key, letter.tag, letter.headers) == ("k", "t", {"h": "1"})
    assert (letter.error_class, letter.error) == ("ZeroDivisionError", "attempt 17")
    assert 'raise ZeroDivisionError(f"attempt {message.attempt}")' in letter.traceback
    message = Message.objects.get()
    assert (letter.sent_at, letter.producer) == (message.created_at, message.producer)
    assert Delivery.objects.filter(state=State.START).count() == 0
    assert audit("default") == []


def test_messages_that_fail_together_do_not_come_back_together():
    fail_with(ValueError())
    send_many([Outgoing("orders", n) for n in range(10)])
    drain("mail")
    due = sorted(at for at in RetryMessage.objects.values_list("due_at", flat=True) if at)
    assert due[-1] - due[0] > 0.1 * SECOND


def test_the_ladder_is_a_setting_and_its_last_step_repeats(ems_settings):
    ems_settings(RETRY_DELAYS=[100, 1000])
    fail_with(ValueError())
    send("orders", 1)
    waits = []
    for _attempt in range(4):
        drain("mail")
        ended = Delivery.objects.latest("id")
        waits.append((RetryMessage.objects.get().due_at - ended.finished_at).total_seconds())
        advance(timedelta(hours=1))
    assert 80 <= waits[0] <= 121
    assert all(800 <= wait <= 1201 for wait in waits[1:])


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_max_retries_counts_the_attempts_after_the_first(max_retries):
    attempts = fail_with(ValueError(), max_retries=max_retries)
    send("orders", 1)
    drain_to_the_end()
    assert attempts == list(range(1, max_retries + 2))
    assert DeadMessage.objects.get().attempts == max_retries + 1


def test_a_message_that_recovers_is_done_and_leaves_no_row():
    @consumer("orders", group="mail")
    def handle(message):
        if message.attempt < 3:
            raise ValueError

    send("orders", 1)
    drain_to_the_end()
    assert not DeadMessage.objects.exists()
    states = Delivery.objects.order_by("id").values_list("attempt", "kind", "state")
    assert list(states) == [
        (1, Kind.NEW, State.RETRY),
        (2, Kind.RETRY, State.RETRY),
        (3, Kind.RETRY, State.DONE),
    ]
    assert audit("default") == []


def test_a_failure_stays_within_its_group():
    fail_with(Reject("no"))
    seen: list[Any] = []
    consumer("orders", group="board")(seen.append)
    send("orders", 1)
    drain()
    assert len(seen) == 1
    assert DeadMessage.objects.get().group.name == "mail"


# -- Retry and Reject --------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [90, 0.5, timedelta(hours=3)])
def test_retry_with_a_delay_comes_back_exactly_then(delay):
    fail_with(Retry("later", delay=delay))
    send("orders", 1)
    drain("mail")
    row, ended = RetryMessage.objects.get(), Delivery.objects.get()
    wanted = delay if isinstance(delay, timedelta) else delay * SECOND
    assert wanted <= row.due_at - ended.finished_at < wanted + SECOND
    assert row.last_error == "Retry: later"


def test_retry_without_a_delay_follows_the_ladder():
    fail_with(Retry("later"))
    send("orders", 1)
    drain("mail")
    waits = RetryMessage.objects.get().due_at - Delivery.objects.get().finished_at
    assert 8 * SECOND <= waits <= 13 * SECOND


def test_retry_counts_as_an_attempt():
    attempts = fail_with(Retry("not yet", delay=0), max_retries=4)
    send("orders", 1)
    drain("mail")
    assert attempts == [1, 2, 3, 4, 5]
    letter = DeadMessage.objects.get()
    assert (letter.error_class, letter.error) == ("streams.errors.Retry", "not yet")


@pytest.mark.parametrize("delay", [timedelta(days=400_000), timedelta.max])
def test_a_retry_beyond_all_calendars_fails_its_message_and_not_the_worker(delay):
    @consumer("orders", group="mail")
    def handle(message):
        raise Retry("in a thousand years", delay=delay)

    send_many([Outgoing("orders", n) for n in range(2)])
    assert drain("mail").failed == 2
    assert RetryMessage.objects.count() == 2


def test_reject_is_dead_at_once():
    attempts = fail_with(Reject("no such customer"))
    send("orders", {"customer": 7})
    result = drain("mail")
    assert (result.failed, result.dead, attempts) == (1, 1, [1])
    letter = DeadMessage.objects.get()
    assert (letter.attempts, letter.error) == (1, "no such customer")
    assert letter.error_class == "streams.errors.Reject"
    assert not RetryMessage.objects.exists()
    assert audit("default") == []


def test_reject_on_a_later_attempt_is_dead_at_once():
    @consumer("orders", group="mail")
    def handle(message):
        raise Reject("now") if message.attempt == 2 else ValueError

    send("orders", 1)
    drain_to_the_end()
    assert DeadMessage.objects.get().attempts == 2


# -- batches -----------------------------------------------------------------------------------


def test_of_a_batch_only_those_fail_that_the_handler_names():
    seen = []

    @consumer("orders", group="mail", batch=10, max_retries=5)
    def handle(messages):
        seen.append([m.body for m in messages])
        errors = {2: ValueError("two"), 4: Reject("four"), 6: Retry("six", delay=3600)}
        return {m: errors[m.body] for m in messages if m.body in errors and m.attempt == 1}

    send_many([Outgoing("orders", n) for n in range(8)])
    result = drain("mail")
    assert (result.done, result.failed, result.dead) == (5, 3, 1)
    assert sorted(RetryMessage.objects.values_list("offset", "last_error")) == [
        (2, "ValueError: two"),
        (6, "Retry: six"),
    ]
    assert DeadMessage.objects.get().offset == 4
    ended = Delivery.objects.get()
    assert (ended.state, ended.failed, ended.progress) == (State.RETRY, 3, 8)
    advance(20 * SECOND)
    assert drain("mail").done == 1
    assert seen == [list(range(8)), [2]]  # retries come one by one
    assert audit("default") == []


def test_of_a_batch_whose_handler_raises_all_fail():
    attempts = []

    @consumer("orders", group="mail", batch=3)
    def handle(messages):
        attempts.append([m.offset for m in messages])
        if len(messages) > 1:
            raise ValueError

    send_many([Outgoing("orders", n) for n in range(3)])
    assert drain("mail").failed == 3
    advance(20 * SECOND)
    assert drain("mail").done == 3
    assert attempts[0] == [0, 1, 2]
    assert sorted(attempts[1:]) == [[0], [1], [2]]


def test_an_empty_answer_means_that_all_is_done():
    consumer("orders", group="mail", batch=3)(lambda messages: {})
    send_many([Outgoing("orders", n) for n in range(3)])
    assert drain("mail").done == 3


@pytest.mark.parametrize(
    "answer",
    [
        lambda messages: list(messages),
        lambda messages: 3,
        lambda messages: "all went well",
        lambda messages: {m.offset: ValueError() for m in messages},
        lambda messages: {messages[0]: ValueError(), "another": ValueError()},
        lambda messages: dict.fromkeys(messages, "a text"),
        lambda messages: dict.fromkeys(messages, None),
        lambda messages: dict.fromkeys(messages, ValueError),
    ],
    ids=["list", "number", "text", "offsets", "stranger", "texts", "none", "class"],
)
def test_a_nonsensical_answer_fails_the_batch_and_says_why(answer):
    consumer("orders", group="mail", batch=3, max_retries=1)(answer)
    send_many([Outgoing("orders", n) for n in range(3)])
    result = drain("mail")
    assert (result.done, result.failed) == (0, 3)
    assert all(isinstance(error, TypeError) for error in result.errors)
    advance(20 * SECOND)
    assert drain("mail").dead == 3
    letter = DeadMessage.objects.all()[0]
    assert letter.error_class == "TypeError"
    assert "{message: exception}" in letter.error


# -- whatever a handler raises -----------------------------------------------------------------


def run_worker():
    """As in production: what a handler raises must never leave the worker's step."""
    process = Process("mail")
    sequence("default")
    assert process.worker.step() == 0.0


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
def test_a_handler_that_only_makes_a_coroutine_has_not_handled_anything(kind):
    """The decorator cannot see it: a plain function around an async one."""

    async def deferred(message):
        pass

    def yielding(message):
        yield

    consumer("orders", group="mail")(
        lambda message: (deferred if kind == "coroutine" else yielding)(message)
    )
    send("orders", 1)
    result = drain("mail")
    assert (result.done, result.failed) == (0, 1)
    assert kind in str(result.errors[0])


class Stop(BaseException):
    pass


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("not even its name can be told")


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        asyncio.CancelledError(),
        GeneratorExit(),
        type("Stop", (BaseException,), {})(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_an_exception_fails_the_message_too(error, batch, atomic):
    fail_with = consumer("orders", group="mail", batch=batch, atomic=atomic)

    @fail_with
    def handle(argument):
        raise error

    send_many([Outgoing("orders", n) for n in range(2)])
    run_worker()
    assert sorted(RetryMessage.objects.values_list("offset", "attempt")) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("max_retries", [0, 5], ids=["dead", "retried"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError(os.fsdecode(b"a file name: \xff\xfe")),
        ValueError("a zero: \0, a tab: \t, a newline: \n"),
        ValueError("an emoji: \N{SNOWMAN}\N{PILE OF POO}"),
        ValueError("x" * 3_000_000),
        type("C" * 300, (Exception,), {})("a long name"),
        Unspeakable(),
    ],
    ids=["surrogates", "control", "emoji", "long", "long-name", "unspeakable"],
)
def test_no_error_is_too_odd_to_be_noted(error, max_retries):
    fail_with(error, max_retries=max_retries)
    send("orders", 1)
    run_worker()
    assert Delivery.objects.get().state == State.RETRY
    found = DeadMessage if max_retries == 0 else RetryMessage
    assert found.objects.count() == 1


def test_the_dead_letter_has_the_whole_chain_of_errors():
    @consumer("orders", group="mail", max_retries=0)
    def handle(message):
        try:
            os.environ["THE_CAUSE"]
        except KeyError as error:
            raise ValueError("the effect") from error

    send("orders", 1)
    drain("mail")
    letter = DeadMessage.objects.get()
    assert "KeyError: 'THE_CAUSE'" in letter.traceback
    assert "direct cause" in letter.traceback
    assert letter.error == "the effect"


def test_a_body_that_cannot_be_decoded_fails_its_message_and_no_other():
    seen = []

    @consumer("orders", group="mail", max_retries=1)
    def handle(message):
        seen.append(message.body)

    send_many([Outgoing("orders", {"n": n}) for n in range(3)])
    sequence("default")
    Message.objects.filter(offset=1).update(body=b"{broken")
    result = drain("mail")
    assert (result.done, result.failed) == (2, 1)
    assert seen == [{"n": 0}, {"n": 2}]
    advance(20 * SECOND)
    assert drain("mail").dead == 1
    letter = DeadMessage.objects.get()
    assert bytes(letter.body) == b"{broken"
    assert letter.error_class == "json.decoder.JSONDecodeError"


def test_a_handler_that_need_not_decode_may_handle_it_anyway():
    seen = []
    consumer("orders", group="mail")(lambda message: seen.append(message.raw_body))
    send("orders", {"n": 1})
    sequence("default")
    Message.objects.update(body=b"{broken")
    assert drain("mail").done == 1
    assert seen == [b"{broken"]


def test_a_database_error_of_the_handler_fails_only_its_message():
    @consumer("orders", group="mail")
    def handle(message):
        Order.objects.create(number="the same")

    send_many([Outgoing("orders", n) for n in range(3)])
    result = drain("mail")
    assert (result.done, result.failed) == (1, 2)
    assert all(isinstance(error, IntegrityError) for error in result.errors)
    assert Order.objects.count() == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_that_leaves_a_transaction_open_does_not_swallow_the_outcome(fails):
    """The settlement must not become part of the handler's own, unfinished business."""

    @consumer("orders", group="mail")
    def handle(message):
        if message.attempt == 1:
            transaction.set_autocommit(False)
            Order.objects.create(number=f"{message.offset}")
            if fails:
                raise ValueError

    process = Process("mail")
    send("orders", 1)
    sequence("default")
    process.worker.step()
    connection.close()  # as the end of the thread would
    assert not Delivery.objects.open().exists()
    if fails:
        assert RetryMessage.objects.get().attempt == 2
    assert audit("default") == []


# -- rows --------------------------------------------------------------------------------------


def scheduled(*rows):
    consumer("orders", group="mail")(print)
    send("orders", 1)
    sequence("default")
    group = Process("mail").feed.group
    place = group.cursors.get().partition_id
    for row in rows:
        RetryMessage.objects.schedule(group.pk, place, [row])
    return RetryMessage.objects.get()


def minutes(n):
    return timedelta(minutes=n)


@pytest.mark.parametrize("order", [1, -1])
def test_a_waiting_row_keeps_the_higher_attempt_and_the_earlier_time(order):
    rows = [Again(0, 5, minutes(60), "a"), Again(0, 2, minutes(5), "b", True)]
    row = scheduled(*rows[::order])
    created = Message.objects.get().created_at
    assert row.attempt == 5
    assert minutes(5) <= row.due_at - created < minutes(6)
    assert row.alone
    assert not row.again


def test_a_held_row_is_marked_to_be_seen_again_and_otherwise_left_alone():
    row = scheduled(Again(0, 3, minutes(0), "first"))
    delivery, _row = Process("mail").claim_retry(minutes(1))
    RetryMessage.objects.schedule(row.group_id, row.partition_id, [Again(0, 9, minutes(0), "x")])
    row.refresh_from_db()
    assert (row.delivery_id, row.attempt, row.again) == (delivery.pk, 3, True)
    assert row.last_error == "first"


def test_many_rows_at_once():
    consumer("orders", group="mail")(print)
    group = Process("mail").feed.group
    partition = group.cursors.get().partition_id
    RetryMessage.objects.schedule(group.pk, partition, [Again(n, 2) for n in range(1200)])
    assert RetryMessage.objects.count() == 1200


# -- claiming ----------------------------------------------------------------------------------


def test_retries_and_new_messages_take_turns_so_that_neither_starves():
    order = []

    @consumer("orders", group="mail", batch=1)
    def handle(messages):
        order.append("retry" if messages[0].attempt > 1 else "new")
        if len(order) <= 4:
            raise ValueError

    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(4)])
    process.run_until_idle()
    advance(20 * SECOND)
    process.client.register()
    send_many([Outgoing("orders", n) for n in range(4)])
    process.turn._turns.claimer._retries_at = (
        0.0  # the look for retries is a quarter of a second ago
    )
    process.run_until_idle()
    assert order[4:] == ["retry", "new"] * 4


def test_the_retry_that_has_been_due_for_longest_comes_first():
    seen = []

    @consumer("orders", group="mail")
    def handle(message):
        seen.append(message.body)
        if message.attempt == 1:
            raise Retry("later", delay=message.body)

    send_many([Outgoing("orders", seconds) for seconds in (30, 10, 20)])
    drain("mail")
    advance(60 * SECOND)
    drain("mail")
    assert seen == [30, 10, 20, 10, 20, 30]


def test_a_retry_is_dead_without_another_attempt_when_max_retries_was_lowered():
    attempts = fail_with(ValueError("the real reason"), max_retries=5)
    send("orders", 1)
    drain("mail")
    advance(20 * SECOND)
    drain("mail")
    ConsumerGroup.objects.update(max_retries=1)
    advance(60 * SECOND)
    assert drain("mail").dead == 1
    assert attempts == [1, 2]
    letter = DeadMessage.objects.get()
    assert (letter.attempts, letter.error) == (2, "ValueError: the real reason")
    assert not RetryMessage.objects.exists()
    assert audit("default") == []
