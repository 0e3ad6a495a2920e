"""A rate for each key: what begins, what waits, and what it costs."""

from __future__ import annotations

import itertools
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, ReceivedMessage, consumer, send, send_many, signals
from streams.chaos.forks import in_fork
from streams.consume.rate import MICROSECONDS, Rate
from streams.deliver.key_starts import KeySlots, KeyStarts
from streams.errors import InvalidConsumer
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    DeadMessage,
    Delivery,
    KeyBucket,
    RateBucket,
    RetryMessage,
    State,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.process.deaths import Deaths
from streams.process.shared.progress_file import ProgressFile
from streams.retain.old_rows import key_buckets
from streams.rules.key import key_hash
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process, fail, given_back, registered

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

SLOW = "10/h"  # one message of a key now, and none while a test runs


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no message be too late because the machine is busy."""
    monkeypatch.setattr(KeyStarts, "serve", True)


def mail(handler: Any = lambda message: None, rate: str = SLOW, **options: Any) -> None:
    options = {"rate_key": "tenant", **options}
    consumer("orders", group="mail", start="earliest", rate=rate, **options)(handler)


def sent(*tenants: str) -> None:
    send_many([Outgoing("orders", name, headers={"tenant": name}) for name in tenants])


def refill() -> None:
    """Let a message of each key begin, and what waits come again."""
    KeyBucket.objects.update(next_slot=0, queued_until=0)
    advance(timedelta(days=1))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate_key": "tenant"}, "needs a rate"),
        ({"rate_key": "tenant", "rate": "5/s", "ordered": True}, "not ordered"),
        ({"rate_key": "tenant", "rate": "5/s", "ordered": "key"}, "not ordered"),
        ({"rate_key": "tenant", "rate": "5/s", "mode": "broadcast"}, "no rate"),
        ({"rate_key": "", "rate": "5/s"}, "rate_key must be"),
        ({"rate_key": 5, "rate": "5/s"}, "rate_key must be"),
    ],
)
def test_a_consumer_with_a_wrong_key_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConsumer, match=text):
        consumer("orders", group="mail", **options)(lambda message: None)


@pytest.mark.parametrize("key", ["tenant", lambda message: message.headers["tenant"]])
def test_while_a_key_waits_the_others_of_its_claim_go_on(key: Any) -> None:
    seen: list[str] = []
    failed: list[object] = []
    signals.message_failed.connect(failed.append, dispatch_uid="key_rates")
    mail(lambda message: seen.append(message.body), rate_key=key, max_retries=3)
    process = Process("mail")
    sent("a", "a", "a", "b", "a", "c")
    process.run_until_idle()
    signals.message_failed.disconnect(dispatch_uid="key_rates")
    assert seen == ["a", "b", "c"]
    rows = RetryMessage.objects.order_by("offset")
    assert [(row.offset, row.attempt) for row in rows] == [(1, 1), (2, 1), (4, 1)]
    # They come again one after the other, and not all at once.
    waits = [after.due_at - before.due_at for before, after in itertools.pairwise(rows)]
    assert all(abs(wait - timedelta(minutes=6)) < timedelta(seconds=5) for wait in waits)
    assert [row.failed for row in Delivery.objects.all()] == [0]
    assert [row.state for row in Delivery.objects.all()] == [State.RETRY]
    assert (process.feed.totals.done, process.feed.totals.failed) == (3, 0)
    assert not failed
    assert not RateBucket.objects.exists()
    assert ConsumerGroup.objects.get().rate_in_force == "10/h, burst=1, each key"
    assert not list(audit("default"))


def test_what_has_waited_begins_when_it_may_with_its_attempt_unspent() -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.attempt), max_retries=0)
    process = Process("mail")
    sent("a", "a", "a")
    process.run_until_idle()
    assert seen == [1]
    refill()
    process.run_until_idle()
    assert seen == [1, 1]
    assert RetryMessage.objects.get().attempt == 1
    refill()
    process.run_until_idle()
    assert seen == [1, 1, 1]
    assert not RetryMessage.objects.exists()
    assert not list(audit("default"))


def test_what_is_new_comes_after_those_that_wait() -> None:
    seen: list[Any] = []
    mail(lambda message: seen.append(message.offset))
    process = Process("mail")
    sent("a", "a")
    process.run_until_idle()
    KeyBucket.objects.update(next_slot=0)  # a message may begin: it is that of the first in line
    sent("a")
    process.run_until_idle()
    assert seen == [0]
    first, second = RetryMessage.objects.order_by("offset")
    assert first.due_at
    assert second.due_at
    assert second.due_at - first.due_at > timedelta(minutes=5)


def test_a_retry_takes_a_slot_of_its_key() -> None:
    mail(fail, retry=[timedelta(microseconds=1)])
    process = Process("mail")
    sent("a", "b")
    process.run_until_idle()
    for _look in range(3):
        process.worker.step()
    assert [row.attempt for row in RetryMessage.objects.all()] == [2, 2]
    refill()
    process.run_until_idle()
    assert [row.attempt for row in RetryMessage.objects.all()] == [3, 3]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_batch_gets_what_may_begin(atomic: bool) -> None:
    calls: list[list[str]] = []
    mail(lambda messages: calls.append([m.body for m in messages]), batch=100, atomic=atomic)
    process = Process("mail")
    sent("a", "b", "a", "b", "c", "a")
    process.run_until_idle()
    assert calls == [["a", "b", "c"]]
    due = {row.offset: row.due_at for row in RetryMessage.objects.all()}
    assert sorted(due) == [2, 3, 5]
    assert due[2]
    assert due[5]
    assert due[5] - due[2] > timedelta(minutes=5)
    assert not list(audit("default"))


def test_a_batch_that_fails_leaves_the_attempts_of_those_that_wait() -> None:
    mail(fail, batch=100)
    process = Process("mail")
    sent("a", "a", "b")
    process.run_until_idle()
    rows = RetryMessage.objects.order_by("offset").values_list("offset", "attempt")
    assert list(rows) == [(0, 2), (1, 1), (2, 2)]


def test_messages_without_the_header_are_of_one_key() -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset))
    process = Process("mail")
    send_many([Outgoing("orders", n) for n in range(3)])
    process.run_until_idle()
    assert seen == [0]
    assert KeyBucket.objects.get().key_hash == key_hash("")


@pytest.mark.parametrize("key", [lambda message: message.headers["tenant"], lambda message: 5])
def test_a_message_whose_key_cannot_be_told_has_failed(key: Any) -> None:
    mail(rate_key=key)
    process = Process("mail")
    send("orders", 1)
    process.run_until_idle()
    row = RetryMessage.objects.get()
    assert row.attempt == 2
    assert "KeyError" in row.last_error or "rate_key must return" in row.last_error
    assert process.feed.totals.failed == 1


def test_a_death_after_a_message_was_held_back_loses_nothing() -> None:
    mail()
    process = Process("mail")
    sent("a", "a", "b")
    sequence("default")
    delivery = process.claim()
    registration = registered("orders", "mail")
    assert registration.rate
    starts = KeyStarts(delivery, "tenant", registration.rate)
    assert starts._take({key_hash("a"): 2})[key_hash("a")].number == 1
    advance(LONG_AFTER)
    sweep("default")  # its process has died
    refill()
    for _turn in range(4):
        process.client.register()
        process.run_until_idle()
        refill()
    assert not RetryMessage.objects.exists()
    assert not list(audit("default"))


def test_a_drain_waits_for_no_key() -> None:
    seen: list[int] = []
    mail(lambda message: seen.append(message.offset))
    sent("a", "a", "a")
    assert drain("mail").done == 3
    assert not KeyBucket.objects.exists()


def test_a_group_without_a_key_has_not_one_statement_more() -> None:
    consumer("orders", group="mail", rate="1000/s")(lambda message: None)
    process = Process("mail")
    send("orders", 1)
    with CaptureQueriesContext(connection) as queries:
        process.run_until_idle()
    assert queries.captured_queries
    assert not [one for one in queries if "ems_rate_key" in one["sql"]]


def take(number: int, rate: str, holder: Delivery) -> KeySlots:
    return KeyStarts(holder, "tenant", Rate.of(rate))._take({7: number})[7]


@pytest.fixture
def holder() -> Delivery:
    mail()
    process = Process("mail")
    sent("a")
    sequence("default")
    return process.claim()


def test_a_key_that_paused_may_begin_its_burst_and_no_more(holder: Delivery) -> None:
    rate = Rate.of("10/s", 20)
    assert take(100, "10/s, burst=20", holder).number == rate.at_once
    bucket = KeyBucket.objects.get()
    assert bucket.queued_until - bucket.next_slot == (100 - rate.at_once) * rate.interval
    assert take(5, "10/s, burst=20", holder).number == 0


def test_after_a_clock_was_set_back_the_rate_of_a_key_goes_on(holder: Delivery) -> None:
    assert take(1, SLOW, holder).number == 1
    far = 10**9 * MICROSECONDS
    KeyBucket.objects.update(next_slot=KeyBucket.objects.get().next_slot + far)
    take(1, SLOW, holder)
    assert KeyBucket.objects.get().next_slot < KeyBucket.objects.get().queued_until + far // 2


def test_old_buckets_are_deleted_and_begin_with_no_more_than_they_had(holder: Delivery) -> None:
    day = 86_400 * MICROSECONDS
    take(1, SLOW, holder)
    KeyBucket.objects.update(next_slot=KeyBucket.objects.get().next_slot - day // 2)
    assert list(key_buckets("default")) == []
    KeyBucket.objects.update(next_slot=KeyBucket.objects.get().next_slot - day)
    assert list(key_buckets("default")) == [1]
    # Ten days of an hourly rate may be late; of a key that is new it is one day.
    assert take(1000, "1/h, burst=240", holder).number in (24, 25)


def test_takes_of_one_statement_lock_keys_in_one_order(holder: Delivery) -> None:
    starts = KeyStarts(holder, "tenant", Rate.of("10/s"))
    taken = starts._take({9: 1, 3: 1, 5: 1})
    assert list(taken) == [3, 5, 9]


def test_a_death_in_a_batch_spends_no_attempt_of_what_the_rate_of_its_key_holds_back(
    tmp_path: Path, ems_settings: Any
) -> None:
    ems_settings(STATE_DIR=str(tmp_path))

    def die(messages: Any) -> None:
        if any(message.attempt == 1 and message.body == "b" for message in messages):
            os.kill(os.getpid(), signal.SIGKILL)

    mail(die, batch=5)
    sent("a", "a", "b", "a", "c")
    process = Process("mail")  # the group is made before the fork
    assert in_fork(lambda: Process("mail", file=ProgressFile("default", 1)).run_until_idle()) == -9
    assert Deaths("default").recover() == 1
    # 0, 2 and 4 were in the call. 1 and 3 were not, and are claimed again.
    rows = RetryMessage.objects.order_by("offset")
    assert {row.offset: row.attempt for row in rows} == {0: 2, 2: 2, 4: 2}
    assert given_back() == [(1, 1), (3, 3)]
    for _round in range(5):
        refill()
        process.run_until_idle()
    assert process.feed.totals.done == 5
    assert not RetryMessage.objects.exists()
    assert not list(audit("default"))


def test_a_last_attempt_that_ends_in_a_batch_buries_nothing_uncalled() -> None:
    called: list[int] = []

    def hang(messages: list[ReceivedMessage]) -> None:
        called.extend(message.offset for message in messages)
        Delivery.objects.update(deadline=UtcNow(-LONG_AFTER))
        sweep("default")

    mail(hang, batch=5, max_retries=0)
    sent("a", "a", "b", "a", "c")
    process = Process("mail")
    process.run_until_idle()
    assert sorted(called) == [0, 2, 4]
    assert sorted(DeadMessage.objects.values_list("offset", flat=True)) == [0, 2, 4]
    for _round in range(5):
        refill()
        process.client.register()
        process.run_until_idle()
    assert sorted(called) == [0, 1, 2, 3, 4]
    assert not list(audit("default"))
