"""Says how many messages a claim covers: as many as one thread handles in a part of a second."""

from __future__ import annotations

from dataclasses import dataclass

from streams.conf import MAX_BATCH

# A claim takes at most this part of what a worker thread's share of the backlog is: the others
# come to an end at about the same time.
PART = 4
# Seconds after which the rest of a claim of more than one batch is given back: its handler has
# become slow, and other threads can take it.
LONG_SECONDS = 1.0


@dataclass
class Pace:
    """The measure of how fast one worker thread handles the messages of one group.

    ``seconds``: how long the handler calls of a claim may take; with 0, each claim is one batch.
    ``workers``: the worker threads of the group, in all processes.
    """

    seconds: float = 0.0
    workers: int = 1
    # In seconds a message; None until a claim has been handled.
    each: float | None = None

    def messages(self, batch: int, backlog: int) -> int:
        """Return how many of the ``backlog`` next messages a claim covers, in whole batches.

        It is one batch at least, though there may be fewer messages.
        """
        if self.each is None or not self.seconds:
            return batch
        most = min(MAX_BATCH, -(-backlog // (PART * self.workers)))
        if self.each * most > self.seconds:
            most = int(self.seconds / self.each)
        return max(batch, most - most % batch)

    def learn(self, handled: int, seconds: float) -> None:
        """Note that a claim took ``seconds``, in which ``handled`` messages have not failed.

        The pace slows down at once, and speeds up by and by. Without any success nothing is known
        of the next messages: the next claim is one batch.
        """
        if not handled:
            self.each = None
            return
        now = seconds / handled
        self.each = now if self.each is None else max(now, 0.7 * self.each + 0.3 * now)
