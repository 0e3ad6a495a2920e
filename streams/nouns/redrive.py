"""Describes a redrive of dead letters at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class RedriveShown(Noun):
    """A redrive at a rate; ``total`` is null if nobody has counted the letters."""

    redrive: int = column("pk")
    database: str = column("_state.db")
    about: str
    state: str
    rate: float
    total: int | None
    done: int
    left_out: int = column("skipped")
    begun_by: str = column("who")
    begun_at: datetime = column("created_at")
    finished_at: datetime | None
