"""Holds how far the live figures count and list."""

from __future__ import annotations

from streams.log.lag import Lag

# In rows: a count ends here, and is shown as "10,000+". To count hundreds of thousands takes long.
COUNT_AT_MOST = 10_000

# In groups, topics and partitions: a page lists at most this many, the worst first.
LISTED_AT_MOST = 50


def known_done(lag: Lag) -> int | None:
    """Return how many messages the group has finished; None where a count has ended too early.

    What is not counted would look as if it were done.
    """
    return None if max(lag.waiting, lag.dead) >= COUNT_AT_MOST else lag.done
