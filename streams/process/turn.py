"""Defines a turn of a worker thread in a group: claim → handle → settle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from streams.consume.limits import Limits
from streams.deliver.calls import Calls
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.deliver.lanes import LaneHandling
from streams.deliver.turns import Turns
from streams.models import Delivery
from streams.process.lanes import LaneThreads
from streams.process.pool import Wanted
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.process.shared.in_flight import hung


class Turn:
    """The turns of one thread in one group; only that thread calls ``take``."""

    def __init__(self, runtime: Runtime, feed: RunningGroup, thread: str) -> None:
        self._runtime = runtime
        self._feed = feed
        client = runtime.client.client_id
        claimer = Claimer(
            *(feed.group, client, thread, runtime.using),
            pace=feed.pace,
            locks=feed.locks,
            rank=feed.registration.rank,
        )
        claimer.starts.whole = feed.registration.batch is not None
        claimer.starts.tagged = bool(feed.registration.tags)
        self._turns = Turns(claimer)
        self._slot = runtime.file.slot(thread)
        self._thread = thread
        self._lanes: LaneThreads | None = None
        self._calls: Calls | None = None  # those that are under way

    @property
    def calling(self) -> bool:
        """Tell whether the handler runs, or the next call waits for its turn."""
        calls = self._calls
        return calls is not None and calls.calling

    @property
    def hangs(self) -> bool:
        """Tell whether the thread is in a call that is overdue by the grace."""
        calls = self._calls
        return calls is not None and hung(calls)

    def take(self, wanted: Wanted) -> bool:
        """Claim and handle one delivery; return whether the group may have more for this thread.

        If it has not, the group is woken when there is more.
        """
        limits = self._feed.limits()
        if limits is None or self._feed.rest.lasts:
            return False
        self._runtime.idle_limit.allow(limits.consume_timeout)
        if self._runtime.lifecycle.stopping:
            return False
        starts = self._turns.claimer.starts
        starts.rate = None if self._feed.registration.rate_key else limits.rate
        found = starts.look() and self._take(limits, wanted)
        if not found and starts.held:
            self._runtime.pool.hold(self._feed, starts.held_until)
            return True
        return found

    def _take(self, limits: Limits, wanted: Wanted) -> bool:
        claimer = self._turns.claimer
        claimer.client_id = self._runtime.client.client_id
        claimer.pace.seconds = 0.0 if limits.one_call else limits.claim_seconds
        if (
            limits.rate and claimer.starts.rate
        ):  # the slots of a claim are lost to those who are late
            claimer.pace.seconds = min(claimer.pace.seconds, limits.rate.late / 2e6)
        claimer.pace.workers = limits.workers
        batch = limits.claimed_at_once(self._feed.registration)
        claimed, left, timeout = None, wanted.more, limits.consume_timeout
        if wanted.call:
            claimed = self._runtime.arrivals.claim(wanted.call, self._turns, batch, timeout)
        if left and not claimed:
            claimed, left = self._turns.claim(batch, timeout), False
        if claimed is None:
            return False
        if claimer.more:
            self._runtime.pool.wake(self._feed)
        delivery, retry = claimed
        alone = delivery.alone or (retry and retry.alone)
        handling = self._of(delivery)(
            delivery,
            self._feed.registration,
            limits,
            retry=retry,
            may_go_on=lambda: (
                self._runtime.may_go_on() and self._runtime.client.keeps(delivery.client_id)
            ),
            beside=self._alone if alone else self._feed.gate.together,
            others_idle=lambda: self._runtime.pool.has_idle(self._feed),
            slot=self._slot,
            starts=claimer.starts,
        )
        began, waited = time.monotonic(), claimer.starts.waited
        try:
            self._run(handling)
        finally:
            if retry is None:
                outcome = handling.outcome
                took = time.monotonic() - began - (claimer.starts.waited - waited)
                claimer.pace.learn(outcome.done + outcome.passed, outcome.failed, took)
                self._turns.new_seconds = took if len(delivery.offsets) > limits.batch else 0.0
        client, outcome = claimer.client_id, handling.outcome
        # A message that has failed alone was reached, too: by what its handler needs.
        if outcome.done or (outcome.failed and not handling.away):
            self._feed.rest.end(client)
        if handling.away:
            self._feed.rest.begin(handling.away, client, began)
        # The retry of what has failed may be due already; a rest that was given back is for others.
        return left or claimer.more or outcome.failed > 0 or outcome.released > 0

    def _of(self, delivery: Delivery) -> Callable[..., Handling]:
        """Return what handles the delivery: one message needs no lanes."""
        if self._feed.registration.lanes == 1 or len(delivery.offsets) == 1:
            return Handling
        if self._lanes is None:
            self._lanes = LaneThreads(self._runtime, self._feed, self._thread)
        return partial(LaneHandling, lanes=self._lanes.lanes)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let a suspect run beside no message of its group, and beside no suspect of another one.

        One of them may end the process each time, and each would take the others along each time.
        """
        with self._runtime.suspects.alone(), self._feed.gate.alone():
            yield

    def _run(self, calls: Calls) -> None:
        """Make the calls, let the heartbeat see them meanwhile, and count what came of them."""
        self._runtime.held.add(calls)
        self._calls = calls
        try:
            calls.run()
        finally:
            self._calls = None
            self._runtime.held.discard(calls)
            self._feed.add(calls.outcome)
