"""Defines a turn of a worker thread in a group: claim → handle → settle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from streams.consume.limits import Limits
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.deliver.turns import Claimed, Turns
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.process.shared.in_flight import Held, hung


class Turn:
    """Serves one group in one thread; only that thread calls ``take``, as often as it likes."""

    def __init__(self, runtime: Runtime, feed: RunningGroup, thread: str) -> None:
        self._runtime = runtime
        self._feed = feed
        self._claimer = Claimer(feed.group, runtime.client.client_id, thread, runtime.using)
        self._turns = Turns(self._claimer)
        self._handling: Held | None = None

    @property
    def calling(self) -> bool:
        """Tell whether the handler runs, or the next call waits for its turn."""
        handling = self._handling
        return handling is not None and handling.calling

    @property
    def hangs(self) -> bool:
        """Tell whether the thread is in a call that is overdue by the grace."""
        handling = self._handling
        return handling is not None and hung(handling)

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
        claimed = self._claim(limits)
        if claimed is None:
            return False
        self._runtime.pool.wake(self._feed)
        self._hand_over(claimed, limits)
        return True

    def _claim(self, limits: Limits) -> Claimed | None:
        self._claimer.client_id = self._runtime.client.client_id
        # Whoever dies spends an attempt of each message that it has claimed: where there is no
        # second one, that is one batch.
        self._claimer.pace.seconds = limits.claim_seconds if limits.max_retries else 0.0
        self._claimer.pace.workers = limits.workers
        return self._turns.claim(limits.batch, limits.consume_timeout)

    def _hand_over(self, claimed: Claimed, limits: Limits) -> None:
        delivery, retry = claimed
        gate = self._feed.gate
        alone = delivery.alone or (retry and retry.alone)
        handling = Handling(
            delivery,
            self._feed.registration,
            limits,
            retry=retry,
            may_go_on=self._runtime.may_go_on,
            beside=gate.alone if alone else gate.together,
        )
        began = time.monotonic()
        try:
            with self._holding(handling):
                handling.run()
        finally:
            self._feed.add(handling.outcome)
            if retry is None:
                outcome = handling.outcome
                handled = outcome.done + outcome.passed
                took = time.monotonic() - began
                self._claimer.pace.learn(handled, took)
                self._turns.new_seconds = took if len(delivery.offsets) > limits.batch else 0.0

    @contextmanager
    def _holding(self, handling: Held) -> Iterator[None]:
        """Let the heartbeat see what this thread holds, and ``hangs`` tell of its calls."""
        self._runtime.held.add(handling)
        self._handling = handling
        try:
            yield
        finally:
            self._handling = None
            self._runtime.held.discard(handling)
