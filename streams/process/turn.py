"""Defines a turn of a worker thread in a group: claim → handle → settle."""

from __future__ import annotations

import time

from streams.consume.limits import Limits
from streams.deliver.calls import Calls
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.deliver.pace import Pace
from streams.deliver.turns import Turns
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.process.shared.in_flight import hung


class Turn:
    """The turns of one thread in one group; only that thread calls ``take``."""

    def __init__(self, runtime: Runtime, feed: RunningGroup, thread: str) -> None:
        self._runtime = runtime
        self._feed = feed
        pace = Pace(single=feed.registration.batch is None)
        client = runtime.client.client_id
        claimer = Claimer(feed.group, client, thread, runtime.using, pace=pace)
        self._turns = Turns(claimer)
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

    def take(self) -> bool:
        """Claim and handle one delivery; return False if there was none, or none is wanted."""
        limits = self._feed.limits()
        if limits is None:
            return False
        self._runtime.idle_limit.allow(limits.consume_timeout)
        if self._runtime.lifecycle.stopping:
            return False
        return self._take(limits)

    def _take(self, limits: Limits) -> bool:
        claimer, gate = self._turns.claimer, self._feed.gate
        claimer.client_id = self._runtime.client.client_id
        # Whoever dies spends an attempt of each message that it has claimed: where there is no
        # second one, that is one batch.
        claimer.pace.seconds = limits.claim_seconds if limits.max_retries else 0.0
        claimer.pace.workers = limits.workers
        claimed = self._turns.claim(limits.batch, limits.consume_timeout)
        if claimed is None:
            return False
        self._runtime.pool.wake(self._feed)
        delivery, retry = claimed
        alone = delivery.alone or (retry and retry.alone)
        handling = Handling(
            delivery,
            self._feed.registration,
            limits,
            retry=retry,
            may_go_on=self._runtime.may_go_on,
            beside=gate.alone if alone else gate.together,
            others_idle=lambda: self._runtime.pool.has_idle(self._feed),
        )
        began = time.monotonic()
        try:
            self._run(handling)
        finally:
            if retry is None:
                outcome = handling.outcome
                took = time.monotonic() - began
                claimer.pace.learn(outcome.done + outcome.passed, outcome.failed, took)
                self._turns.new_seconds = took if len(delivery.offsets) > limits.batch else 0.0
        return True

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
