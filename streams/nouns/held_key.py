"""Describes a held key: the message that holds it, and how many wait for that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class HeldKeyShown(Noun):
    """A key of a group ordered by key whose messages wait for the one at ``offset``.

    ``behind`` wait for it, counted up to 10,001. ``attempt`` runs, or comes next at ``due_at``.
    """

    id: int = column("held.pk")
    group: str = column("held.group.name")
    topic: str = column("held.group.topic.name")
    database: str = column("held._state.db")
    key: str = column("held.key")
    partition: int = column("held.partition.number")
    offset: int = column("held.head_offset")
    state: str
    attempt: int | None
    due_at: datetime | None
    held_at: datetime = column("held.held_at")
    behind: int


@dataclass(frozen=True, kw_only=True)
class FailedKey(HeldKeyShown):
    """A held key with the error of the message that holds it."""

    error: str
