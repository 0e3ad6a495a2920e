"""Slow handlers share: what has not begun is given to whoever is idle, also behind a running call.

A call cannot be interrupted, but the calls of its claim that have not begun are nobody's yet.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from streams import Outgoing, consumer, send_many
from streams.consume.outcome import settle as outcome
from streams.consume.outcome.expire import expire
from streams.deliver import calls, handling
from streams.deliver.slot import UnreadSlot
from streams.log.sequencer import sequence
from streams.models import Consumer, ConsumerGroup, Cursor, Delivery, RetryMessage, State
from streams.observe.audit.walk import audit
from streams.operate.acts.act import Consent
from streams.operate.acts.replay import ReplayToGroup
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER, Process, consume_the_rest, given_back
from tests.processes import PATIENCE_SECONDS, Spawn, wait_for
from tests.proxy import Proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

InThread = Callable[..., Any]


def fill(count: int = 10, tagged: int | None = None) -> None:
    send_many([Outgoing("orders", n, tag="t" if n == tagged else "") for n in range(count)])
    sequence("default")


class Hanging:
    """Has a worker whose call of the offset ``at`` does not end before ``end`` is set.

    It claims ten messages. What takes long does so at once.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, in_thread: InThread, at: int = 0, **options: Any
    ) -> None:
        self._at = at
        self.began, self.end = threading.Event(), threading.Event()
        self.handled: list[int] = []
        self.fails = False

        @consumer("orders", group="mail", **options)
        def handle(argument: Any) -> None:
            messages = argument if isinstance(argument, list) else [argument]
            if messages[0].offset == at and not self.began.is_set():
                self.began.set()
                assert self.end.wait(PATIENCE_SECONDS)
                if self.fails:
                    raise ZeroDivisionError
            self.handled += [one.offset for one in messages]

        self.process = Process("mail")
        fill(tagged=at)
        self._monkeypatch, self._in_thread = monkeypatch, in_thread
        self._begin()

    def _begin(self) -> None:
        # The calls before it do not make the claim give way.
        self._monkeypatch.setattr(handling, "LONG_SECONDS", 3600.0 if self._at else 0.0)
        self.step = self._in_thread(self.process.worker.step)
        assert self.began.wait(PATIENCE_SECONDS)
        self._monkeypatch.setattr(handling, "LONG_SECONDS", 0.0)

    def share(self) -> None:
        for one in self.process.held.all():
            one.share()

    def finish(self) -> None:
        self.end.set()
        self.step.result(PATIENCE_SECONDS)

    def replay(self) -> None:
        """Replay all messages, and hang at the same one."""
        self.began.clear()
        self.end.clear()
        every = ReplayToGroup.of({"from": "0", "to": "10"})
        every.run(ConsumerGroup.objects.get(), "default", Consent("me"))
        self._begin()


Hang = Callable[..., Hanging]


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch, in_thread: InThread) -> Iterator[Hang]:
    made: list[Hanging] = []

    def make(at: int = 0, **options: Any) -> Hanging:
        made.append(Hanging(monkeypatch, in_thread, at, **options))
        return made[-1]

    yield make
    for one in made:
        one.end.set()


@pytest.fixture
def hanging(hang: Hang) -> Hanging:
    return hang()


def test_what_waits_behind_a_call_that_hangs_is_handled_by_others(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging.process.poller.step()
    assert given_back() == [(1, 9)]
    monkeypatch.setattr(handling, "LONG_SECONDS", 3600.0)
    other = hanging.process.new_worker(1)
    assert other.step() == 0.0
    assert hanging.handled == [*range(1, 10)]
    hanging.finish()
    assert hanging.handled == [*range(1, 10), 0]
    assert set(Delivery.objects.values_list("state", "attempt")) == {(State.DONE, 1)}
    assert hanging.process.feed.totals.done == 10
    assert audit("default") == []


def test_the_poller_that_gives_it_back_wakes_somebody_for_it(hanging: Hanging) -> None:
    hanging.process.forget_wake_up()
    hanging.process.poller.step()
    assert hanging.process.woken
    hanging.finish()


def test_a_call_that_was_given_back_does_not_begin_here(
    hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = hang(at=3)
    hanging.share()
    assert given_back() == [(4, 9)]
    monkeypatch.setattr(handling, "LONG_SECONDS", 3600.0)  # only the end of the claim stops it
    hanging.finish()
    assert hanging.handled == [0, 1, 2, 3]
    first = Delivery.objects.order_by("pk")[0]
    assert (first.state, first.progress, first.last_offset) == (State.DONE, 4, 3)
    assert given_back() == [(4, 9)]


@pytest.mark.parametrize("fails", [False, True])
def test_of_a_batch_handler_whole_calls_are_given_back(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr("streams.deliver.pace.Pace.messages", lambda *_given: 8)
    hanging = hang(batch=4)
    hanging.fails = fails
    hanging.share()
    assert given_back() == [(4, 7)]
    hanging.finish()
    assert RetryMessage.objects.count() == 4 * fails
    consume_the_rest("mail")
    assert sorted(hanging.handled) == [*range(10)]
    assert audit("default") == []


@pytest.mark.mysql  # on SQLite the handler has the whole database locked
@pytest.mark.parametrize("fails", [False, True])
def test_what_waits_behind_an_atomic_call_is_given_back_once(hang: Hang, fails: bool) -> None:
    hanging = hang(atomic=True)
    hanging.fails = fails
    hanging.share()
    assert given_back() == [(1, 9)]
    hanging.finish()
    assert given_back() == [(1, 9)]
    assert list(RetryMessage.objects.values_list("offset", flat=True)) == [0] * fails
    assert hanging.process.feed.totals.failed == fails
    consume_the_rest("mail")
    assert sorted(hanging.handled) == [*range(10)]
    assert audit("default") == []


def test_an_ordered_group_keeps_what_waits_behind_a_call(hang: Hang) -> None:
    hanging = hang(ordered=True)
    hanging.process.poller.step()
    assert given_back() == []
    hanging.finish()
    assert hanging.handled == [*range(10)]


def test_while_nobody_is_idle_a_claim_keeps_its_calls_for_a_second(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, in_thread: InThread
) -> None:
    monkeypatch.setattr(handling, "LONG_SECONDS", 3600.0)
    monkeypatch.setattr(handling, "SHARED_SECONDS", 0.0)
    with CaptureQueriesContext(connection) as statements:
        hanging.share()
    assert not statements
    pool, feed = hanging.process.pool, hanging.process.feed
    pool.give_back(feed, again=False)  # or it would not rest, but look
    hanging.process.forget_wake_up()
    resting = in_thread(pool.wait, PATIENCE_SECONDS)
    wait_for(lambda: pool.has_idle(feed))
    hanging.share()
    assert given_back() == [(1, 9)]
    pool.stop()
    assert resting.result(PATIENCE_SECONDS)
    hanging.finish()


@pytest.mark.parametrize(
    ("at", "in_call", "gives_way"),
    [(2, 0.0, True), (8, 0.0, False), (8, 0.5, True)],
    ids=["much is left", "nearly done", "behind a long call"],
)
def test_what_is_nearly_done_is_not_given_back(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, at: int, in_call: float, gives_way: bool
) -> None:
    """Quick calls of a busy process are late, too: another claim would cost more than them."""
    hanging = hang(at)
    (claim,) = hanging.process.held.all()
    monkeypatch.setattr(handling, "LONG_SECONDS", 3600.0)
    monkeypatch.setattr(claim, "_others_idle", lambda: True)
    now = time.monotonic()
    monkeypatch.setattr(claim, "_ran_since", now - 0.5)
    monkeypatch.setattr(claim._caller, "since", now - in_call)
    assert isinstance(claim, handling.Handling)
    assert claim.gives_way == gives_way
    hanging.finish()


class Turnstile:
    """A lock that says when a second one comes to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        self.waited_for.set()
        return blocking and self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


@pytest.mark.mysql  # two transactions at once
@pytest.mark.parametrize("tags", [(), ("t",)], ids=["calls follow", "no call follows"])
def test_a_call_that_ends_while_the_rest_is_given_back_is_settled_up_to_there(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, tags: tuple[str, ...]
) -> None:
    """Two would own an offset: the next call would begin, or the settlement take the rest along."""
    lock = Turnstile()
    monkeypatch.setattr(calls, "threading", SimpleNamespace(Lock=lambda: lock))
    hanging = hang(tags=tags)
    leave_range = outcome._write_range
    ended, giving_back = threading.Event(), threading.Event()

    def slowly(delivery: Delivery, first: int) -> None:
        giving_back.set()
        assert lock.waited_for.wait(PATIENCE_SECONDS)
        leave_range(delivery, first)

    def end(*_words: Any) -> None:
        ended.set()
        assert giving_back.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(outcome, "_write_range", slowly)
    monkeypatch.setattr(UnreadSlot, "end", end)
    here = threading.current_thread()
    gives_way = property(lambda _calls: threading.current_thread() is here)
    monkeypatch.setattr(handling.Handling, "gives_way", gives_way)
    hanging.end.set()
    assert ended.wait(PATIENCE_SECONDS)
    hanging.share()
    hanging.finish()
    assert given_back() == [(1, 9)]
    assert Delivery.objects.ended().values_list("progress", "last_offset").get() == (1, 0)
    assert hanging.handled == [0]
    monkeypatch.setattr(outcome, "_write_range", leave_range)
    monkeypatch.setattr(handling.Handling, "gives_way", False)
    consume_the_rest("mail")
    assert hanging.handled == ([0] if tags else [*range(10)])
    assert audit("default") == []


@pytest.mark.parametrize(("at", "ordered"), [(9, False), (9, True), (5, True), (5, "key")])
def test_of_a_host_that_is_gone_what_ended_before_a_long_call_is_not_repeated(
    hang: Hang, at: int, ordered: bool | str
) -> None:
    """Nothing is behind the call, or nobody else may take it."""
    hanging = hang(at, ordered=ordered)
    assert Delivery.objects.held().get().progress == 0
    hanging.share()
    held = Delivery.objects.held().get()
    assert (held.progress, held.last_offset) == (at, 9)
    Consumer.objects.all().delete()
    advance(LONG_AFTER)
    sweep("default")
    if ordered:
        assert Cursor.objects.get().next_offset == at
    else:
        assert RetryMessage.objects.values_list("offset", "attempt").get() == (9, 2)
    hanging.finish()
    advance(LONG_AFTER)
    consume_the_rest("mail")
    times = Counter(hanging.handled)
    assert [times[n] for n in range(at)] == [1] * at
    assert times.keys() == {*range(10)}
    assert audit("default") == []


def test_a_claim_that_has_settled_what_ended_is_left_alone(hang: Hang) -> None:
    hanging = hang(9)
    assert [one.can_share for one in hanging.process.held.all()] == [True]
    hanging.share()
    assert [one.can_share for one in hanging.process.held.all()] == [False]
    hanging.finish()
    assert Delivery.objects.get().state == State.DONE


@pytest.mark.mysql
def test_who_has_the_cursor_is_not_waited_for(hanging: Hanging, in_thread: InThread) -> None:
    with transaction.atomic():
        list(Cursor.objects.select_for_update())
        in_thread(hanging.share).result(PATIENCE_SECONDS)
        assert given_back() == []
    hanging.share()
    assert given_back() == [(1, 9)]
    hanging.finish()


@pytest.mark.mysql
def test_who_has_another_cursor_of_a_replay_by_key_is_not_waited_for(
    hang: Hang, in_thread: InThread
) -> None:
    """It is settled under the locks of all cursors of the place."""
    hanging = hang(5, ordered="key")
    hanging.finish()
    hanging.replay()
    held = Delivery.objects.held()
    with transaction.atomic():
        list(Cursor.objects.filter(replay=0).select_for_update())
        in_thread(hanging.share).result(PATIENCE_SECONDS)
        assert held.get().progress == 0
    hanging.share()
    assert held.get().progress == 5
    hanging.finish()
    assert hanging.handled == [*range(10)] * 2
    assert audit("default") == []


@pytest.mark.mysql
@pytest.mark.parametrize("fault", ["lose_reply_to", "cut_before"])
def test_what_is_given_back_behind_a_call_is_given_back_once_whatever_is_lost(
    proxied: Proxy, hang: Hang, fault: str
) -> None:
    hanging = hang()
    getattr(proxied, fault)(b"COMMIT")
    hanging.share()
    assert proxied.fired == [b"COMMIT"]
    assert given_back() == [(1, 9)]
    hanging.finish()
    assert given_back() == [(1, 9)]
    assert audit("default") == []


def test_a_settlement_that_does_not_know_of_the_end_is_refused(hanging: Hanging) -> None:
    """The process that gave the rest back could not learn whether that was committed."""
    (calls,) = hanging.process.held.all()
    last = calls.delivery.last_offset  # type: ignore[attr-defined]
    hanging.share()
    calls.delivery.last_offset = last  # type: ignore[attr-defined]
    hanging.finish()
    assert given_back() == [(1, 9)]
    delivery = Delivery.objects.held().get()
    assert (delivery.progress, delivery.last_offset) == (0, 0)
    consume_the_rest("mail")
    assert Counter(hanging.handled) == {0: 2, **dict.fromkeys(range(1, 10), 1)}
    assert audit("default") == []


def test_a_sweep_takes_no_offset_that_was_given_back_since_it_looked(hanging: Hanging) -> None:
    read = Delivery.objects.select_related("group").get()
    hanging.share()
    advance(LONG_AFTER)
    assert expire(read, None, LONG_AFTER) is None
    assert not RetryMessage.objects.exists()
    assert expire(Delivery.objects.held().get(), None, LONG_AFTER) is not None
    assert list(RetryMessage.objects.values_list("offset", flat=True)) == [0]
    hanging.finish()


TOGETHER = """
import os, sys, time
from pathlib import Path
from streams import consumer
from django.core.management import call_command

begun = Path(sys.argv[1])
log = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@consumer("orders", group="mail", threads=5)
def handle(message):
    os.write(log, b".")
    place = begun.stat().st_size
    until = time.monotonic() + 30
    # Ten at a time: it ends when all ten threads of both processes are in a call.
    while begun.stat().st_size < -(-place // 10) * 10:
        assert time.monotonic() < until, "a thread is idle while others have messages"
        time.sleep(0.005)

call_command("ems_consume", "--start", "earliest")
"""


@pytest.mark.slow
def test_the_threads_of_all_processes_are_busy_while_messages_wait(
    spawn: Spawn, tmp_path: Path, ems_settings: Any
) -> None:
    ems_settings(POLL_SECONDS=0.05)
    fill(40)
    children = [spawn(TOGETHER, tmp_path / "begun") for _ in range(2)]
    ahead = Cursor.objects.filter(next_offset=40)
    wait_for(
        lambda: ahead.exists() and not Delivery.objects.open().exists(),
        lambda: [child.text() for child in children],
    )
    assert not RetryMessage.objects.exists()
    assert (tmp_path / "begun").stat().st_size == 40
