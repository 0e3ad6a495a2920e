"""A running call that is given up spends an attempt, and its process ends; others are not hurt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from streams import Outgoing, consumer, send_many
from streams.consume.outcome.failure import ProcessDied
from streams.errors import NoSlowCall, PreviewStale, describe
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    RetryMessage,
    State,
    UtcNow,
)
from streams.observe.audit.walk import audit
from streams.operate.acts.act import Consent
from streams.operate.acts.give_up import GiveUpCall, GivingUp
from streams.process.shared.in_flight import hung
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, Process
from tests.processes import PATIENCE_SECONDS, Spawn, wait_for
from tests.proxy import Proxy
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

InThread = Callable[..., Any]


class Slow:
    """Has a worker in a call that runs for an hour, of two messages."""

    def __init__(self, in_thread: InThread, **options: Any) -> None:
        self.began, self.end = threading.Event(), threading.Event()
        self.handled: list[int] = []

        @consumer("orders", group="mail", **options)
        def handle(message: Any) -> None:
            self.began.set()
            assert self.end.wait(PATIENCE_SECONDS)
            self.handled.append(message.offset)

        self.process = Process("mail")
        send_many([Outgoing("orders", n) for n in range(2)])
        sequence("default")
        self.step = in_thread(self.process.worker.step)
        assert self.began.wait(PATIENCE_SECONDS)
        self.process.poller.step()
        age()
        self.group = ConsumerGroup.objects.select_related("topic").get()

    def give_up(self, shown: Any = None) -> GivingUp:
        return GiveUpCall().run(self.group, "default", Consent("ann", shown))

    def finish(self) -> None:
        self.end.set()
        self.step.result(PATIENCE_SECONDS)


def age() -> None:
    """Let the calls that run have begun an hour ago; their time is not over."""
    hour = timedelta(hours=1)
    Delivery.objects.held().update(claimed_at=UtcNow(-hour))
    Delivery.objects.held().exclude(started_at=None).update(started_at=UtcNow(-hour))


@pytest.fixture
def slow(in_thread: InThread, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("streams.deliver.handling.LONG_SECONDS", 0.0)
    made: list[Slow] = []

    def make(**options: Any) -> Slow:
        # An hour is slow, and in time.
        made.append(Slow(in_thread, **{"consume_timeout": 1800, **options}))
        return made[-1]

    yield make
    for one in made:
        one.end.set()


def test_only_its_call_spends_an_attempt(slow: Any) -> None:
    one = slow()
    told = one.give_up()
    assert "0@0" in told.texts()[0]
    (row,) = RetryMessage.objects.values("offset", "attempt", "alone", "last_error")
    assert (row["offset"], row["attempt"], row["alone"]) == (0, 2, False)
    assert row["last_error"].startswith("CallGivenUp: ")
    one.finish()
    assert not Delivery.objects.filter(state=State.DONE).exists()
    advance(LONG_AFTER)
    assert drain("mail").done == 2
    assert Delivery.objects.filter(first_offset=1).get().attempt == 1
    assert audit("default") == []


class Third:
    """Has a worker in its third call; the first has ended, and the second has failed."""

    def __init__(
        self,
        in_thread: InThread,
        monkeypatch: pytest.MonkeyPatch,
        before_the_look: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.began, self.end = threading.Event(), threading.Event()
        self.handled: list[int] = []

        @consumer("orders", group="mail", consume_timeout=1800, **options)
        def handle(message: Any) -> None:
            if message.offset == 1 and message.attempt == 1:
                raise ValueError("no")
            if message.offset == 2 and message.attempt == 1:
                self.began.set()
                assert self.end.wait(PATIENCE_SECONDS)
            self.handled.append(message.offset)

        self.process = Process("mail")
        send_many([Outgoing("orders", n) for n in range(4)])
        sequence("default")
        self.step = in_thread(self.process.worker.step)
        assert self.began.wait(PATIENCE_SECONDS)
        monkeypatch.setattr("streams.deliver.handling.LONG_SECONDS", 0.0)
        (self.calls,) = self.process.held.all()
        self.failures = [*self.calls._failures]
        before_the_look()
        self.process.poller.step()

    def finish(self) -> None:
        self.end.set()
        self.step.result(PATIENCE_SECONDS)


@pytest.fixture
def third(in_thread: InThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[Third]:
    made = Third(in_thread, monkeypatch)
    yield made
    made.end.set()


def test_calls_that_ended_before_it_have_the_outcome_that_they_had(third: Third) -> None:
    held = Delivery.objects.held().get()
    assert (held.progress, held.last_offset, held.failed) == (2, 2, 1)
    age()
    group = ConsumerGroup.objects.select_related("topic").get()
    GiveUpCall().run(group, "default", Consent("ann"))
    waiting = {row.offset: row.last_error for row in RetryMessage.objects.filter(attempt=2)}
    assert waiting[1].startswith("ValueError: ")
    assert waiting[2].startswith("CallGivenUp: ")
    third.finish()
    advance(LONG_AFTER)
    assert drain("mail").done == 3
    assert sorted(third.handled) == [0, 1, 2, 2, 3]
    assert audit("default") == []


def test_what_was_settled_for_its_holder_is_settled_once(third: Third) -> None:
    settled = RetryMessage.objects.get()
    third.finish()
    assert RetryMessage.objects.get() == settled
    ended = Delivery.objects.get(first_offset=0)
    assert (ended.progress, ended.failed, ended.state) == (3, 1, State.RETRY)
    advance(LONG_AFTER)
    assert drain("mail").done == 2
    assert sorted(third.handled) == [0, 1, 2, 3]
    assert audit("default") == []


def test_who_comes_to_settle_a_moment_later_settles_the_rest(third: Third) -> None:
    settled = RetryMessage.objects.get()
    assert [one.offset for one in third.failures] == [1]
    third.calls.settle(2, third.failures)
    assert RetryMessage.objects.get() == settled
    assert Delivery.objects.held().get().failed == 1
    third.finish()


class Asked:
    """A retry policy that notes who asks it about a ValueError, and whether a row is locked."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.free: list[bool] = []

    def delay_after(self, attempt: int, error: BaseException) -> timedelta:
        if not isinstance(error, ValueError):
            return timedelta(minutes=1)
        self.threads.append(threading.current_thread().name)
        other = Session()
        try:
            other.execute("SELECT id FROM ems_topic_group_log FOR UPDATE NOWAIT")
        except OperationalError:
            self.free.append(False)
        else:
            self.free.append(True)
        finally:
            other.close()
        return timedelta(minutes=1)


@pytest.mark.mysql
def test_the_retry_policy_is_asked_once_by_the_thread_of_the_call_and_under_no_lock(
    in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = Third(in_thread, monkeypatch, retry=(policy := Asked()))
    assert Delivery.objects.held().get().failed == 1
    third.finish()
    assert policy.free == [True]
    assert policy.threads != [threading.current_thread().name]
    assert RetryMessage.objects.filter(due_at__gt=UtcNow(timedelta(seconds=30))).count() == 1


@pytest.mark.mysql
def test_a_row_that_others_have_locked_is_left_to_a_later_look(
    in_thread: InThread, monkeypatch: pytest.MonkeyPatch, second_connection: Callable[[], Any]
) -> None:
    other = second_connection()

    def lock() -> None:
        with other.active():
            transaction.set_autocommit(False)
            assert Delivery.objects.held().select_for_update().get().progress == 0

    third = Third(in_thread, monkeypatch, before_the_look=lock)
    assert Delivery.objects.held().get().progress == 0
    with other.active():
        transaction.rollback()
    third.process.poller.step()
    assert Delivery.objects.held().get().progress == 2
    third.finish()
    assert RetryMessage.objects.count() == 1


def test_the_process_of_a_call_that_was_given_up_ends(slow: Any) -> None:
    one = slow()
    one.process.heartbeat.step()
    assert one.process.lifecycle.failure is None
    one.give_up()
    one.process.heartbeat.step()
    assert "was given up" in str(one.process.lifecycle.failure)
    # A drain does not wait for it.
    (calls,) = one.process.held.all()
    assert hung(calls)
    one.finish()
    assert not hung(calls)


def test_a_lease_that_is_lost_otherwise_ends_no_process(slow: Any) -> None:
    one = slow()
    Delivery.objects.held().update(token="another")
    one.process.heartbeat.step()
    assert one.process.lifecycle.failure is None
    one.finish()


def test_a_call_that_is_given_up_after_a_death_is_no_suspect(slow: Any) -> None:
    """It has ended no process by itself: its message may run beside others."""
    one = slow(max_retries=5)
    one.give_up()
    one.finish()
    one.began.clear()
    one.end.clear()
    advance(LONG_AFTER)
    Delivery.objects.filter(state=State.RETRY).update(error=describe(ProcessDied()))
    retry, _row = one.process.claim_retry(timedelta(hours=1))
    retry.start(timedelta(hours=1))
    age()
    one.give_up()
    assert RetryMessage.objects.values_list("attempt", "alone").get() == (3, False)


def test_after_its_last_attempt_it_is_a_dead_letter(slow: Any) -> None:
    one = slow(max_retries=0)
    told = one.give_up()
    assert "dead letters: 1" in told.texts()[0]
    assert DeadMessage.objects.get().error_class.endswith(".CallGivenUp")
    assert not RetryMessage.objects.exists()
    one.finish()


@pytest.mark.mysql
def test_its_dead_letter_is_told_of_after_a_lost_reply(proxied: Proxy, slow: Any) -> None:
    one = slow(max_retries=0)
    proxied.lose_reply_to(b"COMMIT")
    assert one.give_up().dead == DeadMessage.objects.count() == 1
    assert proxied.fired == [b"COMMIT"]


def test_an_ordered_group_goes_back_to_it(slow: Any) -> None:
    one = slow(ordered=True)
    (calls,) = one.process.held.all()
    calls._ran_since -= 3600
    one.give_up()
    cursor = Cursor.objects.get()
    assert (cursor.next_offset, cursor.attempt, cursor.open_delivery) == (0, 2, None)
    one.finish()
    assert one.handled == [0]  # what comes after it waits, though nobody has told the holder


@pytest.mark.mysql  # on SQLite the call has the whole database locked
def test_what_an_atomic_call_wrote_is_rolled_back(slow: Any) -> None:
    one = slow(atomic=True)
    one.give_up()
    one.finish()
    assert RetryMessage.objects.get().attempt == 2
    assert not Delivery.objects.filter(state=State.DONE).exists()


def test_only_a_slow_call_is_given_up_and_only_as_it_was_shown(slow: Any) -> None:
    one = slow()
    shown = GiveUpCall().preview(one.group, "default").shown
    Delivery.objects.held().update(claimed_at=UtcNow())
    with pytest.raises(NoSlowCall):
        one.give_up()
    age()
    with pytest.raises(PreviewStale):
        one.give_up([shown[0], shown[1] + 1])
    with pytest.raises(NoSlowCall):
        one.give_up([shown[0] + 1000, shown[1]])
    assert one.give_up(shown).done
    with pytest.raises(NoSlowCall):
        one.give_up(shown)
    one.finish()


HANGS = """
import sys, time
from pathlib import Path
from streams import consumer
from django.core.management import call_command

folder = Path(sys.argv[1])

@consumer("orders", group="mail", consume_timeout=1800)
def handle(message):
    if message.body == "hangs" and message.attempt == 1:
        (folder / "hangs").touch()
        time.sleep(3600)
    (folder / f"{message.offset}").touch()

call_command("ems_consume", "--start", "earliest", "--threads", "1", "--processes", "1")
"""


@pytest.mark.slow
def test_a_process_that_hangs_is_started_again_and_goes_on(
    spawn: Spawn, tmp_path: Any, ems_settings: Any
) -> None:
    ems_settings(POLL_SECONDS=0.05, RETRY_DELAYS=[0.1])
    send_many([Outgoing("orders", "hangs"), Outgoing("orders", "waits")])
    child = spawn(HANGS, tmp_path)
    wait_for((tmp_path / "hangs").exists)
    age()
    group = ConsumerGroup.objects.select_related("topic").get()
    GiveUpCall().run(group, "default", Consent("ann"))
    child.expect("was given up")
    child.expect("is started again")
    wait_for(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists())
    child.terminate()
    child.succeed()
    assert audit("default") == []
