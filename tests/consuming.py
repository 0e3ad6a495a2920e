"""Runs the parts of a consumer process step by step, on the thread of a test."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db.models import Model

from streams.consume.limits import Overrides
from streams.consume.registry import Registration, find, registrations
from streams.log.sequencer import sequence
from streams.models import Cursor, Delivery, RetryMessage, Start
from streams.models.consumer import LEASE
from streams.process.heartbeat import Heartbeat
from streams.process.poller import ProcessPoller
from streams.process.pool import LOOK_SECONDS, Wanted
from streams.process.running_group import RunningGroup
from streams.process.runtime import Launch, Runtime
from streams.process.shared.connections import IdleLimit
from streams.process.shared.progress_file import NoFile, ProgressFile
from streams.process.turn import Turn
from streams.process.worker import Worker
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.processes import wait_for

# Longer than every lease and every deadline of a test.
LONG_AFTER = max(LEASE, timedelta(seconds=60)) * 2

MINUTE = timedelta(minutes=1)
NONE = Overrides()
NO_FILE = NoFile()


def registered(topic: str, group: str) -> Registration:
    """Return the registered consumer of a group, as find() does, which may return None."""
    registration = find(topic, group)
    assert registration is not None
    return registration


def given_back() -> list[tuple[int, int]]:
    """Return the ranges that wait for the next claim, as first and last offset."""
    rows = Delivery.objects.given_back().order_by("first_offset")
    assert all(row.attempt == 1 and row.progress == row.first_offset for row in rows)
    return [(row.first_offset, row.last_offset) for row in rows]


def sequence_after_a_kill() -> None:
    """Sequence as soon as no killed process holds a partition: a server may notice it late."""
    wait_for(lambda: not sequence("default").busy)


class SteppedWorker(Worker):
    """Looks into its only group at each step, whether it was woken or not.

    Its first claim is one batch, as after some quick messages.
    """

    def turn_in(self, feed: RunningGroup) -> Turn:
        is_new = feed not in self._turns
        turn = super().turn_in(feed)
        if is_new and isinstance(turn, Turn):
            pace = turn._turns.claimer.pace
            pace.each, pace.rough = 1e-6, True
        return turn

    def step(self) -> float:
        (feed,) = self._pool.feeds
        self._pool.wake(feed)
        self._found = False
        delay = super().step()
        if delay == 0.0 and not self._found:
            return LOOK_SECONDS
        return LOOK_SECONDS if delay is None else delay

    def _serve(self, turn: Turn, wanted: Wanted) -> tuple[bool, float]:
        before = wanted.feed.totals
        served = super()._serve(turn, wanted)
        self._found = served[0] or wanted.feed.totals is not before
        return served


class Process:
    """Has what ``ems_consume`` runs for one registered group, without its threads.

    ``process.worker.step()`` claims and handles once, ``process.heartbeat.step()`` is one beat.
    Several of them in one test are several processes.
    """

    def __init__(
        self,
        group: str,
        *,
        overrides: Overrides = NONE,
        drain: bool = False,
        using: str = "default",
        file: ProgressFile | NoFile = NO_FILE,
    ) -> None:
        (registration,) = registrations(groups=(group,))
        self.using = using
        # What a test sends first is not history, unless its consumer says so.
        begin = registration.start or Start.EARLIEST
        self.feed = RunningGroup(registration, using, replace(overrides, start=begin))
        self.runtime = runtime = Runtime.of(
            [self.feed], using, Launch(drain=drain), IdleLimit(using), file
        )
        self.lifecycle, self.held = runtime.lifecycle, runtime.held
        self.activity = runtime.activity
        self.pool, self.client, self.shortage = runtime.pool, runtime.client, runtime.shortage
        self.client.register()
        self.heartbeat = Heartbeat(runtime)
        self.poller = ProcessPoller(runtime)
        self.worker = self.new_worker()

    def new_worker(self, number: int = 0) -> SteppedWorker:
        return SteppedWorker(self.runtime, number)

    @property
    def turn(self) -> Turn:
        """What its worker keeps between its turns in the group."""
        return self.worker.turn_in(self.feed)

    def claim(self, batch: int = 10, timeout: timedelta = MINUTE) -> Delivery:
        """Claim new messages, and do nothing with them."""
        delivery = self.turn._turns.claimer.claim(batch, timeout)
        assert delivery is not None
        return delivery

    def claim_retry(self, timeout: timedelta = MINUTE) -> tuple[Delivery, RetryMessage]:
        self.turn._turns.claimer.client_id = self.client.client_id
        claimed = self.turn._turns.claimer.claim_retry(timeout)
        assert claimed is not None
        return claimed

    @property
    def woken(self) -> bool:
        """Tell whether somebody is to look into the group."""
        return self.pool._shares[self.feed].woken

    def forget_wake_up(self) -> None:
        self.pool._shares[self.feed].woken = False

    def run_until_idle(self) -> None:
        """Sequence, claim, handle, settle, until nothing is due."""
        sequence(self.using)
        while self.worker.step() == 0.0:
            pass


def fail(message: Any) -> None:
    """Fail, as a handler."""
    raise ZeroDivisionError


def consume_the_rest(group: str) -> None:
    """Let leases expire and retries become due, in the rows, until the group has nothing left."""
    for _round in range(20):
        advance(LONG_AFTER)
        sweep("default")
        drain(group)
        of_group = {"group__name": group}
        if not (
            Cursor.objects.filter(**of_group).exclude(blocked_until=None).exists()
            or RetryMessage.objects.filter(**of_group).exists()
            or Delivery.objects.open().filter(**of_group).exists()
        ):
            return
    raise AssertionError(f"{group} never comes to an end")


def rows(*models: type[Model]) -> list[dict[str, Any]]:
    """Return all rows of these tables, to show that something changes nothing."""
    return [row for model in models for row in model._default_manager.order_by("pk").values()]
