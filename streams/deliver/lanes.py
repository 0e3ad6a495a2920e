"""Handles a claim of a group ordered by key in lanes: each key is in one of them at a time.

The thread that has claimed makes no call. It gives the messages to the lanes, in the order of their
offsets, but for those whose key is in a lane; and it alone writes what came of them. What is done
behind a call that has not ended is kept in bits beside the progress: see any_order.py. After a
failure the claim goes on without the key, as the call of a batch does: see parking.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from streams.api import ReceivedMessage
from streams.conf import CLAIM_BYTES
from streams.consume.calling import HandlerCaller
from streams.consume.outcome.any_order import Ends, offsets_of, settle_any_order
from streams.consume.outcome.failure import Failure
from streams.consume.outcome.settle import Settlement
from streams.deliver.calls import CHECKPOINT_SECONDS
from streams.deliver.closing import Closed, not_begun
from streams.deliver.handling import Handling
from streams.errors import LeaseLost
from streams.rules.key import key_hash

# What a lane is: its thread makes the calls that are put here, and ends after a None.
Lane = SimpleQueue[Callable[[], None] | None]


class Keyed(NamedTuple):
    """A message, and the hash of its key; None: it has none, and waits for no other."""

    message: ReceivedMessage
    key: int | None


class LaneEnd(NamedTuple):
    """The end of a call, its lane, and what it raised, unless that is a failure of the handler."""

    lane: Lane
    called: Keyed
    failed: Sequence[Failure]
    raised: BaseException | None = None


class LaneHandling(Handling):
    """The handling of one delivery of a group by key in the threads of ``lanes``.

    They make no statement of EMS. Only new messages and replays come here: a retry is one message.
    """

    def __init__(self, *claimed: Any, lanes: Sequence[Lane], **options: Any) -> None:
        super().__init__(*claimed, **options)
        self.delivery.in_lanes = True
        self._lanes = lanes
        self._callers: dict[int, HandlerCaller] = {}  # by the thread of the lane
        self._ends: SimpleQueue[LaneEnd] = SimpleQueue()
        self._ahead: list[Keyed] = []  # those that were read, and whose key was in a lane
        self._in_lanes = 0
        self._busy: set[int | None] = set()
        self._held: set[int | None] = set()  # keys that have failed
        self._raised: BaseException | None = None
        # As bits of the claim. A lane writes its end by itself, so that a death repeats no more
        # than what ran.
        self._begun_bits = self._done_bits = 0
        self._noting = threading.Lock()

    @property
    def calling(self) -> bool:
        return self._waiting or any(one.running for one in list(self._callers.values()))

    def time_left(self) -> timedelta:
        running = [one.time_left() for one in list(self._callers.values()) if one.running]
        return min([*running, super().time_left()])

    def make(self, calls: Iterable[list[ReceivedMessage]], make_atomically: Any = None) -> None:
        """Make the calls side by side, and settle the outcomes; see Calls.make."""
        rows = iter(calls)
        idle = list(self._lanes)
        early = False
        self._caller.since = None  # what it measures is the time of the settlements
        self._enter()
        try:
            while True:
                while idle and not early and (one := self._next(rows)):
                    early = not self._may_start([one.message])
                    if not early:
                        self._begin(idle.pop(), one)
                if not self._in_lanes:
                    break
                idle += self._ended_now()
                early = early or self._raised is not None
                if time.monotonic() - self._settled > CHECKPOINT_SECONDS:
                    self._checkpoint()
        finally:
            while self._in_lanes:  # no call goes on that nobody sees
                self._ended_now()
        self._caller.since = time.monotonic()
        self._close(early=early)
        if self._raised is not None:
            raise self._raised

    def _next(self, rows: Iterator[list[ReceivedMessage]]) -> Keyed | None:
        """Return the first message whose key is free; None if there is none for now."""
        self._ahead = [one for one in self._ahead if one.key not in self._held]
        for place, one in enumerate(self._ahead):
            if one.key not in self._busy:
                return self._ahead.pop(place)
        while sum(one.message.size for one in self._ahead) < CLAIM_BYTES:
            found = next(rows, None)
            if found is None:
                return None
            (message,) = found
            one = Keyed(message, None if message.key is None else key_hash(message.key))
            if one.key in self._busy:
                self._ahead.append(one)
            elif one.key not in self._held:
                return one
        return None

    def _begin(self, lane: Lane, one: Keyed) -> None:
        self._in_lanes += 1
        if one.key is not None:
            self._busy.add(one.key)
        with self._noting:
            self._begun_bits |= self._bit(one.message)
            self._slot.any_order(self._begun_bits, self._done_bits)
        lane.put(lambda: self._call(lane, one))

    def _call(self, lane: Lane, one: Keyed) -> None:
        """Make a call, in the thread of the lane."""
        try:
            thread = threading.get_ident()
            if thread not in self._callers:  # it watches the connection of its thread
                self._callers[thread] = self._new_caller()
            failed = self._callers[thread].failures([one.message])
            if not failed:
                with self._noting:
                    self._done_bits |= self._bit(one.message)
                    self._slot.any_order(self._begun_bits, self._done_bits)
            self._ends.put(LaneEnd(lane, one, failed))
        except BaseException as error:  # noqa: BLE001 - the claiming thread raises it
            self._ends.put(LaneEnd(lane, one, [], error))

    def _ended_now(self) -> list[Lane]:
        """Wait for the end of a call, until the next checkpoint at most; return its lane."""
        try:
            end = self._ends.get(timeout=CHECKPOINT_SECONDS)
        except Empty:
            return []
        self._in_lanes -= 1
        self._busy.discard(end.called.key)
        if end.failed:
            self._failures += end.failed
            if end.called.key is not None:
                self._held.add(end.called.key)
        self._raised = self._raised or end.raised
        return [end.lane]

    def _checkpoint(self) -> None:
        """Write what is done by now; what has failed is written at the end of the claim."""
        self._settled = time.monotonic()
        delivery, before = self.delivery, self.delivery.progress
        running = timedelta(seconds=time.monotonic() - self._ran_since)
        ends = Ends(delivery, self._done_bits, running)
        if ends.settled == (delivery.settled or 0) or ends.whole:
            return
        self._caller.since = time.monotonic()
        if settle_any_order([ends], self._using):
            raise LeaseLost
        self._caller.since = None
        self._note(Closed(range(before, delivery.progress), Settlement([]), (), 0))

    def _close(self, *, early: bool) -> None:
        """Settle the claim; if it ends ``early``, up to the last call that has begun."""
        delivery, first = self.delivery, self.delivery.first_offset
        stop = first + self._begun_bits.bit_length() if early else delivery.last_offset + 1
        if stop > delivery.progress:
            begun = offsets_of(self._begun_bits, first)
            rest = not_begun(delivery, begun, stop, self._reading.left_out)
            self.settle(stop, [*self._failures, *rest])
        if delivery.progress <= delivery.last_offset:
            self.release()

    def _bit(self, message: ReceivedMessage) -> int:
        return 1 << (message.offset - self.delivery.first_offset)
