"""Claims of many batches: what a kill, a freeze, a stop and a handler that turns slow make of them.

A claim covers as much as its thread handles in a quarter of a second. What is promised of a batch
is promised of these: nothing is lost, and little is repeated.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from streams import Outgoing, consumer, send_many
from streams.deliver import calls as loop
from streams.deliver import handling
from streams.log.sequencer import sequence
from streams.models import Consumer, Delivery, RetryMessage, State
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.steps.sweep import sweep
from streams.testing import advance
from tests.consuming import LONG_AFTER, Process, consume_the_rest, given_back
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

MESSAGES = 5000
# A whole claim of a thousand comes before it, when a quarter of the backlog is as many.
STOPS_AT = 900


def fill(count: int) -> None:
    for start in range(0, count, 500):
        send_many([Outgoing("orders", n) for n in range(start, min(start + 500, count))])
    sequence("default")


class Quick:
    """Has one worker in a process whose handler is known to be quick."""

    def __init__(self, messages: int, handle: Any, **options: Any) -> None:
        consumer("orders", group="mail", threads=1, **options)(handle)
        self.process = Process("mail")
        fill(messages)
        self.pace = self.process.turn._turns.claimer.pace
        self.pace.each, self.pace.rough = 1e-6, False

    def step(self) -> Delivery:
        """Claim and handle once; return the delivery."""
        before = set(Delivery.objects.values_list("pk", flat=True))
        assert self.process.worker.step() == 0.0
        return Delivery.objects.exclude(pk__in=before).order_by("pk")[0]


def test_what_one_thread_has_learned_the_others_know() -> None:
    """The first claims are small ones, of which each costs as many statements as a large one."""
    quick = Quick(800, lambda message: None)
    other = quick.process.new_worker(1)
    other.turn_in(quick.process.feed)
    quick.pace.each, quick.pace.rough = None, False
    sizes = [len(quick.step().offsets) for _ in range(3)]
    assert sizes[:2] == [1, 10]
    assert sizes[2] > 10
    assert other.step() == 0.0
    assert len(Delivery.objects.order_by("-pk")[0].offsets) > 10


# -- what a call gets --


def test_a_claim_of_many_batches_gives_each_call_one_batch() -> None:
    calls: list[list[int]] = []
    quick = Quick(100, lambda ms: calls.append([m.offset for m in ms]), batch=4)
    first = quick.step()
    assert (first.first_offset, first.last_offset, first.state) == (0, 23, State.DONE)
    assert calls == [list(range(n, n + 4)) for n in range(0, 24, 4)]
    while quick.process.worker.step() == 0.0:
        pass
    assert [offset for call in calls for offset in call] == list(range(100))
    assert audit("default") == []


def test_of_many_batches_only_what_failed_comes_back() -> None:
    def handle(messages: Any) -> Any:
        if messages[0].offset == 4:
            raise ZeroDivisionError
        return {m: ValueError() for m in messages if m.offset == 9}

    quick = Quick(48, handle, batch=4)
    delivery = quick.step()
    assert (delivery.last_offset, delivery.failed, delivery.state) == (11, 5, State.RETRY)
    rows = RetryMessage.objects.order_by("offset").values_list("offset", "attempt")
    assert list(rows) == [(4, 2), (5, 2), (6, 2), (7, 2), (9, 2)]


@pytest.mark.parametrize("batch", [None, 10])
def test_after_a_claim_in_which_all_failed_the_next_is_one_batch(batch: int | None) -> None:
    """A thousand messages must not spend an attempt because they fail quickly."""

    def fail(argument: Any) -> None:
        raise ZeroDivisionError

    quick = Quick(400, fail, batch=batch)
    assert len(quick.step().offsets) == 100
    quick.process.turn._turns.last_was_retry = True  # new messages first
    assert len(quick.step().offsets) == 10


# -- what is repeated --


@pytest.mark.parametrize("batch", [None, 2])
def test_batches_are_settled_once_in_a_second_like_single_messages(
    batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed repeats the calls since then, and the one that ran."""
    seen: list[int] = []

    def handle(argument: Any) -> None:
        seen.append(Delivery.objects.get().progress)
        if len(seen) == 3:
            monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)

    size = batch or 1
    Quick(24 * size, handle, batch=batch).step()
    assert seen[:6] == [0, 0, 0, 3 * size, 4 * size, 5 * size]


def test_nothing_is_settled_before_its_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    calls: list[int] = []

    def die(messages: Any) -> None:
        calls.append(messages[0].offset)
        if len(calls) == 3:
            raise KeyboardInterrupt

    quick = Quick(24, die, batch=2)
    with pytest.raises(KeyboardInterrupt):
        quick.process.worker.step()
    delivery = Delivery.objects.get()
    assert (delivery.progress, delivery.last_offset, delivery.state) == (4, 5, State.START)
    Consumer.objects.all().delete()
    sweep("default")
    assert [row.offset for row in RetryMessage.objects.order_by("offset")] == [4, 5]


# -- a handler that turns slow --


def test_a_handler_that_turns_slow_gives_the_rest_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise one thread would have a thousand slow messages, while the others are idle."""
    monkeypatch.setattr(handling, "LONG_SECONDS", 0.01)
    handled: list[int] = []

    def slow(message: Any) -> None:
        handled.append(message.offset)
        time.sleep(0.02)

    quick = Quick(400, slow)
    first = quick.step()
    assert (first.state, first.first_offset, first.last_offset) == (State.RELEASED, 0, 0)
    assert given_back() == [(1, 99)]
    assert not RetryMessage.objects.exists()
    monkeypatch.setattr(handling, "LONG_SECONDS", 60.0)
    other = quick.process.new_worker(1)
    assert other.step() == 0.0  # another thread, whose claims are one batch as yet
    assert handled == [0, *range(1, 11)]
    assert quick.process.turn._turns.claimer.pace.messages(10, 10**6) <= 20
    assert audit("default") == []


# -- the end of a process --

CONSUMER = """
import os, sys, time
from pathlib import Path
from streams import consumer
from django.core.management import call_command

folder = Path(sys.argv[1])
seen = os.open(folder / "seen", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@consumer("orders", group="mail", batch={batch})
def handle(argument):
    messages = argument if {batch} else [argument]
    for message in messages:
        os.write(seen, b"%d\\n" % message.offset)
    if messages[0].offset >= {stops_at} and not (folder / "go").exists():
        (folder / "stopped").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)

call_command("ems_consume", "--start", "earliest", "--threads", "1")
"""


class Stage:
    """Has a process that stops in the middle of a large claim, in the handler."""

    def __init__(self, spawn: Spawn, folder: Path, batch: int | None) -> None:
        self.folder = folder
        fill(MESSAGES)
        self.code = CONSUMER.format(batch=batch, stops_at=STOPS_AT)
        self.child = spawn(self.code, folder)
        wait_for((folder / "stopped").exists)
        self.delivery = Delivery.objects.open().get()
        assert len(self.delivery.offsets) > 100

    def seen(self) -> Counter[int]:
        return Counter(map(int, (self.folder / "seen").read_text().split()))

    def finish(self) -> Counter[int]:
        """Let another process, and the sweep, do the rest; return how often each was seen."""
        seen = self.seen()

        def note(message: Any) -> None:
            seen[message.offset] += 1

        consumer("orders", group="mail")(note)
        consume_the_rest("mail")
        assert set(seen) == set(range(MESSAGES))
        assert audit("default") == []
        return seen


@pytest.fixture(
    params=[None, pytest.param(10, marks=pytest.mark.exhaustive)], ids=["one message", "batches"]
)
def stage(request: pytest.FixtureRequest, spawn: Spawn, tmp_path: Path, ems_settings: Any) -> Stage:
    ems_settings(POLL_SECONDS=0.05)
    return Stage(spawn, tmp_path, request.param)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_kill_repeats_the_calls_of_a_second_and_loses_nothing(stage: Stage) -> None:
    stage.child.kill()
    handled = set(stage.seen())
    Consumer.objects.all().delete()
    assert sweep("default") == 1
    delivery = Delivery.objects.get(pk=stage.delivery.pk)
    rows = RetryMessage.objects.order_by("offset")
    assert [row.offset for row in rows] == [*range(delivery.progress, delivery.last_offset + 1)]
    assert {row.attempt for row in rows} == {2}
    assert not any(row.alone for row in rows)
    seen = stage.finish()
    repeated = {offset for offset, times in seen.items() if times > 1}
    assert repeated == {offset for offset in handled if offset >= delivery.progress}
    assert max(seen.values()) == 2


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_stop_in_the_middle_gives_the_rest_back_and_repeats_nothing(stage: Stage) -> None:
    stage.child.terminate()
    stage.child.expect("Stopping")
    (stage.folder / "go").touch()
    stage.child.succeed()
    rest = range(max(stage.seen()) + 1, stage.delivery.last_offset + 1)
    assert given_back() == ([(rest[0], rest[-1])] if rest else [])
    assert not RetryMessage.objects.exists()
    assert set(stage.finish().values()) == {1}


@pytest.mark.exhaustive
@pytest.mark.mysql  # on SQLite a frozen process may hold the lock of the whole database
@pytest.mark.slow
def test_a_freeze_loses_nothing_and_records_nothing_late(stage: Stage) -> None:
    stage.child.freeze()
    advance(LONG_AFTER)
    assert sweep("default") >= 1
    ended = Delivery.objects.get(pk=stage.delivery.pk)
    assert ended.state == State.RETRY
    (stage.folder / "go").touch()
    stage.child.thaw()
    stage.child.expect("lost a lease")
    stage.child.terminate()
    stage.child.succeed()
    again = Delivery.objects.get(pk=stage.delivery.pk)
    assert (again.state, again.progress) == (State.RETRY, ended.progress)
    assert LEASE < LONG_AFTER
    stage.finish()


# -- what it costs --


@pytest.mark.mysql
def test_far_behind_a_hundred_messages_take_less_than_three_statements() -> None:
    def statements() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
            return int(cursor.fetchone()[1])

    handled: list[int] = []
    consumer("orders", group="mail", threads=1)(lambda message: handled.append(message.offset))
    process = Process("mail")
    fill(MESSAGES)
    pace = process.turn._turns.claimer.pace
    pace.each, pace.rough = 1e-6, False
    process.worker.step()
    before, done = statements(), len(handled)
    process.worker.step()
    per_hundred = 100 * (statements() - before) / (len(handled) - done)
    assert len(handled) - done > 900
    assert per_hundred <= 2.5
