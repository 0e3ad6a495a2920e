"""What consuming may cost: ``make bench`` fails beyond. One line for each line of the figures."""

from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """Limits what 100 messages cost while the group is far behind."""

    statements: float
    flushes: float


BOUNDS = {
    "batch": Bound(statements=15.5, flushes=2.1),
    "defaults": Bound(statements=165, flushes=21),
}
