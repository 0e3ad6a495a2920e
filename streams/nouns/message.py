"""Describes a message, and what the groups have done with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from streams.models import IMMEDIATE
from streams.nouns.noun import BodyTypeName, Noun, column


@dataclass(frozen=True, kw_only=True)
class MessageHead(Noun):
    """A message without its body; ``offset`` is null until it is sequenced."""

    message_id: int = column("pk")
    database: str = column("_state.db")
    topic: str = column("partition.topic.name")
    partition: int = column("partition.number")
    offset: int | None
    key: str | None
    tag: str
    size: int
    body_type: BodyTypeName
    producer: str
    deliver_at: datetime | None = column(lambda m: None if m.due_at == IMMEDIATE else m.due_at)
    created_at: datetime
    sequenced_at: datetime | None
    headers: dict[str, Any] = column(lambda row: row.headers or {})


@dataclass(frozen=True, kw_only=True)
class MessageShown(MessageHead):
    """A message; ``has_body`` is false if the token has no right to read its body.

    ``damaged``: what is stored of the body cannot be read, and it is null.
    """

    has_body: bool
    damaged: bool
    body: Any


@dataclass(frozen=True, kw_only=True)
class AttemptShown(Noun):
    """One delivery of the message, which may have covered others, too."""

    delivery: int = column("delivery.pk")
    kind: str = column("delivery.kind")
    attempt: int = column("delivery.attempt")
    outcome: str
    error: str
    client: str = column("delivery.client_id")
    thread: str = column("delivery.thread")
    claimed_at: datetime = column("delivery.claimed_at")
    started_at: datetime | None = column("delivery.started_at")
    finished_at: datetime | None = column("delivery.finished_at")
    waited_seconds: timedelta | None = column("waited")
    took_seconds: timedelta | None = column("took")


@dataclass(frozen=True, kw_only=True)
class GroupWay(Noun):
    """What a group has done with the message, and what it does next (``state``)."""

    group: str = column("group.name")
    state: str
    attempts: list[AttemptShown] = column(lambda one: [*map(AttemptShown.of, one.attempts)])
    retry_at: datetime | None = column(
        lambda one: one.retry.due_at if one.retry and one.retry.delivery_id is None else None
    )
    dead_letters: list[int] = column(lambda one: [letter.pk for letter in one.dead])


@dataclass(frozen=True, kw_only=True)
class Way(Noun):
    message: MessageHead
    groups: list[GroupWay]
