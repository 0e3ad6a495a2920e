"""Describes a client of a group: a process, or one that pulls over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from streams.database.clock import database_now
from streams.models import Consumer, Delivery
from streams.nouns.noun import Noun, column


@dataclass(frozen=True, kw_only=True)
class GroupClient(Noun):
    """A client of a group: it is ``live`` until its lease ends, ``open`` messages are its own."""

    client: str = column("client_id")
    group: str = column("group.name")
    topic: str = column("group.topic.name")
    database: str = column("_state.db")
    live: bool
    open: int
    started_at: datetime
    lease_until: datetime


def clients(rows: Iterable[Consumer], using: str) -> list[GroupClient]:
    """Describe these clients; two statements, beside that of ``rows`` with their groups."""
    found, now = list(rows), database_now(using)
    held: Counter[tuple[str, int]] = Counter()
    groups = {row.group_id for row in found}
    for claim in Delivery.objects.using(using).open().filter(group__in=groups):
        held[claim.client_id, claim.group_id] += claim.unsettled
    return [
        GroupClient.of(row, live=row.lease_until >= now, open=held[row.client_id, row.group_id])
        for row in found
    ]
