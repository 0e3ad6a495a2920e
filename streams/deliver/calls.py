"""Makes the handler calls for a stretch of the log, one after the other, and settles them."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from streams.api import ReceivedMessage
from streams.consume.calling import HandlerCaller, Stretch
from streams.consume.limits import Limits
from streams.consume.outcome.failure import Failure, ResourceAway
from streams.consume.outcome.lines import Lines
from streams.consume.registry import Registration
from streams.deliver.closing import Outcome
from streams.deliver.slot import UnreadSlot

# In seconds. Finished calls are settled at least this often, so a crash repeats the calls of at
# most this time, and the one that was running.
CHECKPOINT_SECONDS = 1.0
# Failed calls are settled when their messages have this many bytes: an error keeps the message, and
# what the handler has made of it, in memory.
CHECKPOINT_BYTES = 1024 * 1024


class Calls(ABC):
    """The calls of one thread for one stretch, and their outcome.

    A cluster group records it in the tables, a broadcast group on the disk of its client.
    """

    # Whether the messages after a failed one wait for it.
    ordered = False

    def __init__(
        self,
        registration: Registration,
        stretch: Stretch,
        limits: Limits,
        using: str,
        slot: UnreadSlot | None = None,
    ) -> None:
        self.registration = registration
        self.limits = limits
        self.outcome = Outcome()
        self.lost = False  # set by the heartbeat, from another thread
        self.given_up = False  # so, too: an operator has ended the running call
        self.away: ResourceAway | None = None  # why a call could not be made
        self._stretch = stretch
        self._using = using
        self._slot = slot or UnreadSlot()
        self._size = 1 if registration.batch is None else limits.batch
        self._lines = Lines.wanted()
        self._caller = self._new_caller()
        self._settled = time.monotonic()
        # Another thread may settle what has ended while a call runs, and give back what is behind
        # it: see share().
        self._ending = threading.Lock()
        # What has ended since then: the offsets below ``_ended``, of which these have failed.
        self._ended = stretch.progress
        self._failures: list[Failure] = []
        self._failed_bytes = 0

    def _new_caller(self) -> HandlerCaller:
        """Return what makes calls in the calling thread."""
        return HandlerCaller(
            self.registration,
            self._stretch,
            timeout=self.limits.consume_timeout,
            using=self._using,
            lines=self._lines,
        )

    @property
    def calling(self) -> bool:
        """Tell whether the handler runs."""
        return self._caller.running

    @property
    def overdue(self) -> bool:
        """Tell whether the running call takes longer than its message allows."""
        return self._caller.overdue

    def time_left(self) -> timedelta:
        """Return the time until the running or next call is overdue; negative once it is."""
        return self._caller.time_left()

    @abstractmethod
    def run(self) -> Outcome:
        """Read the messages, make the calls and settle them; return the outcome."""

    @abstractmethod
    def renew(self, left: timedelta) -> None:
        """Extend the lease, if there is one, by ``left``; the heartbeat calls this."""

    @property
    def can_share(self) -> bool:
        """Tell whether share() has something to do: a call takes long."""
        return False

    def share(self) -> None:  # noqa: B027 - only what was claimed can be given back
        """Settle what has ended and give back the other calls, if these are to be taken.

        Another thread calls this while a call runs.
        """

    @abstractmethod
    def may_begin(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Tell whether the next call, which gets ``messages``, may start now."""

    @abstractmethod
    def settle(self, progress: int, failures: Sequence[Failure]) -> None:
        """Record the outcome of all offsets below ``progress``."""

    @abstractmethod
    def release(self) -> None:
        """Give back the messages that no call has been given."""

    def make(
        self,
        calls: Iterable[list[ReceivedMessage]],
        make_atomically: Callable[[Sequence[ReceivedMessage]], None] | None = None,
    ) -> None:
        """Make the calls, and settle the outcomes; ``calls`` has the messages of each.

        A call is taken from ``calls`` when its turn comes, so that its messages are let go once
        they are handled. After the last one the whole stretch is settled: for the other offsets
        there is no call to make. ``make_atomically`` makes a call and settles it by itself.
        """
        stretch, caller, slot = self._stretch, self._caller, self._slot
        for messages in calls:
            caller.since = None  # while it waits for its turn, the lease is extended
            begins = self.may_begin(messages)
            caller.since = time.monotonic()
            if not begins:
                if self._ended > stretch.progress:
                    self._settle_until(self._ended)
                self.release()
                return
            slot.begin(messages[0].offset, messages[-1].offset + 1)
            if make_atomically:
                make_atomically(messages)
                slot.end(messages[-1].offset + 1)  # by now its commit is known
            else:
                # Called from here: an error keeps the frame that has made the call, and in any
                # other one its messages would stay.
                failed = caller.failures(messages)
                ended = messages[-1].offset + 1
                if failed:
                    failed, ended = self._until_away(failed, ended)
                    failed = self._judged(failed)
                with self._ending:
                    if failed:
                        self._failures += failed
                        self._failed_bytes += sum(message.size for message in messages)
                    self._ended = ended
                slot.end(ended, failed)
                if self.away:
                    if ended > stretch.progress:
                        self._settle_until(ended)
                    self.release()
                    return
                if self._settles_now():
                    self._settle_until(self._ended)
            if stretch.progress > stretch.last_offset:
                return
        if stretch.progress <= stretch.last_offset:
            self._settle_until(stretch.last_offset + 1)

    def _until_away(self, failed: list[Failure], ended: int) -> tuple[list[Failure], int]:
        """Return what has failed, and how far the call came before what it needs was away.

        From there on nothing is settled, also not what has been done: those messages come again.
        """
        away = [one for one in failed if isinstance(one.error, ResourceAway)]
        if not away:
            return failed, ended
        first = min(away, key=lambda one: one.offset)
        assert isinstance(first.error, ResourceAway)  # noqa: S101 - for mypy
        self.away = first.error
        return [one for one in failed if one.offset < first.offset], first.offset

    def _judged(self, failed: list[Failure]) -> list[Failure]:
        """Return the failures of a call, judged if another thread may settle them."""
        return failed

    def _settles_now(self) -> bool:
        checkpoint = time.monotonic() - self._settled > CHECKPOINT_SECONDS
        checkpoint = checkpoint or self._failed_bytes > CHECKPOINT_BYTES
        return checkpoint or bool(self._failures and self.ordered)

    def _settle_until(self, progress: int) -> None:
        self.settle(progress, self._failures)
        self._failures, self._failed_bytes = [], 0
        self._settled = time.monotonic()
