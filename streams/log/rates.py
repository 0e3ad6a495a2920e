"""Tells which groups are held back by their rates at the moment."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connections

from streams.database.sql import rate as sql
from streams.database.sql.dialect import fetch, placeholders
from streams.models import ConsumerGroup


def held_back(groups: Iterable[ConsumerGroup], using: str) -> set[int]:
    """Return the ids of those of ``groups`` that have begun all that their rates allow by now.

    It reads nothing where no group has a rate.
    """
    ids = [group.pk for group in groups if group.rate_in_force]
    if not ids:
        return set()
    statement = sql.HELD_BACK[connections[using].vendor] % placeholders(ids)
    return {pk for (pk,) in fetch(using, statement, ids)}
