"""Describes a delivery: what a client has claimed, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.nouns.at_place import AtPlace
from streams.nouns.noun import column


@dataclass(frozen=True, kw_only=True)
class DeliveryShown(AtPlace):
    """A range of offsets that a client has claimed; those below ``progress`` are settled."""

    id: int
    first_offset: int
    last_offset: int
    progress: int
    kind: str
    attempt: int
    state: str
    failed: int
    client: str = column("client_id")
    thread: str
    claimed_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline: datetime
    error: str


@dataclass(frozen=True, kw_only=True)
class RunningDelivery(DeliveryShown):
    """A delivery; if it is held, how long its call runs, and how long is usual."""

    running_seconds: timedelta | None
    usual_seconds: timedelta | None
    slow: bool | None
