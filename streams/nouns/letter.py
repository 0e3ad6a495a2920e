"""Describes a dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streams.nouns.at_place import AtPlace
from streams.nouns.noun import BodyTypeName, column


@dataclass(frozen=True, kw_only=True)
class LetterHead(AtPlace):
    """A dead letter without its body."""

    topic: str = column("group.topic.name")
    group: str = column("group.name")
    id: int
    offset: int
    message_id: int
    key: str | None
    tag: str
    size: int
    attempts: int
    error_class: str
    error: str
    producer: str
    sent_at: datetime
    died_at: datetime
    redriven_at: datetime | None
    edited_at: datetime | None

    @property
    def failure(self) -> str:
        return f"{self.error_class}: {self.error}"[:60]


@dataclass(frozen=True, kw_only=True)
class LetterShown(LetterHead):
    """A dead letter; ``has_body`` is false if the token may not read its body.

    ``damaged``: what is stored of the body cannot be read, and it is null.
    """

    headers: dict[str, Any] = column(lambda row: row.headers or {})
    traceback: str
    body_type: BodyTypeName
    has_body: bool
    damaged: bool
    body: Any
