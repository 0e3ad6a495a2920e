"""Defines where one client of a broadcast group is, in each partition of its topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Position:
    """The next ``offset`` to read, and what identifies the log that it belongs to.

    ``message_id`` and ``sequenced_at`` are those of the message at ``offset`` - 1: ids and offsets
    may be given out again after a database was restored, but not at the same instant. None means
    unknown.
    """

    offset: int
    message_id: int | None = None
    sequenced_at: datetime | None = None


class Positions:
    """The positions of one client, by partition number, in memory until ``save``."""

    def __init__(self, known: Mapping[int, Position] | None = None) -> None:
        self.known: dict[int, Position] = dict(known or {})
        self.taken = known is not None  # by this client, now or in an earlier life

    def save(self) -> None:
        """Store the positions where the next process with this name finds them."""
