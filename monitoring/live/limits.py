"""Holds how far the live figures count and list."""

from __future__ import annotations

# In rows: a count ends here, and is shown as "10,000+". To count hundreds of thousands takes long.
COUNT_AT_MOST = 10_000

# In groups, topics and partitions: a page lists at most this many, the worst first.
LISTED_AT_MOST = 50
