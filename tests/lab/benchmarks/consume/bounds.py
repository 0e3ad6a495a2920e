"""What consuming may cost: ``make bench`` fails beyond. One line for each line of the figures."""

from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """Limits what 100 messages cost while the group is far behind."""

    statements: float
    flushes: float


BOUNDS = {
    "batch": Bound(statements=2.5, flushes=0.5),
    "defaults": Bound(statements=12, flushes=2.5),
}
