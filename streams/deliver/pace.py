"""Says how many messages a claim covers: as many as one thread handles in a part of a second."""

from __future__ import annotations

from dataclasses import dataclass

from streams.conf import MAX_BATCH

# A claim takes at most this part of what a worker thread's share of the backlog is: the others
# come to an end at about the same time.
PART = 4
# Seconds after which the calls of a claim that have not begun are given back: its handler has
# become slow, and other threads can take them; and where a thread of this process is idle. That one
# is a little more than a claim takes by default.
LONG_SECONDS = 1.0
SHARED_SECONDS = 0.3


@dataclass
class Pace:
    """The measure of how fast a thread of this process handles the messages of one group.

    ``seconds``: how long the handler calls of a claim may take; with 0, each claim is one batch.
    ``workers``: the worker threads of the group, in all processes.
    ``single``: whether each call gets one message; otherwise it gets a batch.
    """

    seconds: float = 0.0
    workers: int = 1
    single: bool = False
    # In seconds a message; None until a claim has been handled.
    each: float | None = None
    # Whether that says little of the next messages: then a claim is one batch at most.
    rough: bool = False

    def messages(self, batch: int, backlog: int) -> int:
        """Return how many of the ``backlog`` next messages a claim covers, in whole calls.

        It is one call at least, though there may be fewer messages. While nothing is known it is
        just that: the handler may be slow, and other threads may be idle.
        """
        if not self.seconds:
            return batch
        call = 1 if self.single else batch
        if self.each is None:
            return call
        share = 0 if self.rough else -(-backlog // (PART * self.workers))
        most = min(MAX_BATCH, max(share, batch))
        if self.each * most > self.seconds:
            most = int(self.seconds / self.each)
        return max(call, most - most % call)

    def learn(self, handled: int, failed: int, seconds: float) -> None:
        """Note that a claim took ``seconds``: ``handled`` messages have not failed, others have.

        The pace slows down at once, and speeds up by and by. It is rough after a claim in which all
        have failed, as when a database is away, and after the first one if that was one message.
        """
        if not handled:
            self.each = seconds / failed if failed else None
            self.rough = True
            return
        now = seconds / handled
        if self.each is None or self.rough:
            self.rough = self.each is None and handled == 1
            self.each = now
        else:
            self.each = max(now, 0.7 * self.each + 0.3 * now)
