"""Defines a turn of a worker thread in a group: claim → handle → settle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from streams.consume.limits import Limits
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.models import Delivery, RetryMessage
from streams.process.running_group import RunningGroup
from streams.process.runtime import Runtime
from streams.process.shared.in_flight import Held, hung


class Turn:
    """Serves one group in one thread; only that thread calls ``take``, as often as it likes."""

    def __init__(self, runtime: Runtime, feed: RunningGroup, thread: str) -> None:
        self._runtime = runtime
        self._feed = feed
        self._claimer = Claimer(feed.group, runtime.client.client_id, thread, runtime.using)
        self._last_was_retry = False
        self._retries_until = 0.0  # of the monotonic clock
        self._new_seconds = 0.0  # how long the last claim took, if it was more than one batch
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
        self._hand_over(*claimed, limits)
        return True

    def _claim(self, limits: Limits) -> tuple[Delivery, RetryMessage | None] | None:
        """Claim due retries or new messages, by turns while there are both.

        A turn of retries is one of them, or takes as long as the last claim of several batches.
        """
        self._claimer.client_id = self._runtime.client.client_id
        # Whoever dies spends an attempt of each message that it has claimed: where there is no
        # second one, that is one batch.
        self._claimer.pace.seconds = limits.claim_seconds if limits.max_retries else 0.0
        self._claimer.pace.workers = limits.workers
        turn_of_retries = not self._last_was_retry or time.monotonic() < self._retries_until
        retry_first = turn_of_retries and self._claimer.retries_unknown
        if retry_first and (retry := self._claim_retry(limits)):
            return retry
        if new := self._claimer.claim(limits.batch, limits.consume_timeout):
            self._last_was_retry = False
            return new, None
        return None if retry_first else self._claim_retry(limits)

    def _claim_retry(self, limits: Limits) -> tuple[Delivery, RetryMessage] | None:
        retry = self._claimer.claim_retry(limits.consume_timeout)
        if retry and not self._last_was_retry:
            self._retries_until = time.monotonic() + self._new_seconds
        self._last_was_retry = retry is not None
        return retry

    def _hand_over(self, delivery: Delivery, retry: RetryMessage | None, limits: Limits) -> None:
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
                self._new_seconds = took if len(delivery.offsets) > limits.batch else 0.0

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
