"""Where one client of a broadcast group is, in each partition of its topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Position:
    """``offset`` is the next one to read. The rest says which log that was.

    ``message_id`` and ``sequenced_at`` are those of the message at ``offset`` - 1: ids and offsets
    may be given out again after a database was restored, but not at the same instant. None is
    "unknown".
    """

    offset: int
    message_id: int | None = None
    sequenced_at: datetime | None = None


class Positions:
    """The positions of one client, by partition number, held in memory until ``save``."""

    def __init__(self, known: Mapping[int, Position] | None = None) -> None:
        self.known: dict[int, Position] = dict(known or {})
        self.taken = known is not None  # by this client, now or in an earlier life

    def save(self) -> None:
        """Keep them where the next process with this name finds them."""
