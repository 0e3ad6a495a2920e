"""Finds which database of ``EMS["SHARDS"]`` has a prepared message."""

from __future__ import annotations

import logging
from typing import NamedTuple
from uuid import UUID

from django.db import Error, connections

from streams import conf
from streams.database.retrying import retrying
from streams.errors import PreparedConflict, UnknownPrepared, describe
from streams.logs import event
from streams.models import PreparedRow
from streams.models.prepared import UNFINISHED, of_key
from streams.sharding import alias_of, aliases, is_sharded
from streams.two_phase.content import checked_names

logger = logging.getLogger("streams.two_phase")

# Seconds for which one database is asked: a message on another one does not wait for it.
PATIENCE = 1.0


class FoundPrepared(NamedTuple):
    """One row of the key, on ``alias``."""

    alias: str
    topic: str
    state: str
    digest: bytes


def alias_with(biz: str | int | UUID, biz_key: str | int | UUID, using: str | None = None) -> str:
    """Return the alias that has this prepared message: ``using``, or that of its topic.

    A database that is away is left out if another one has the message. Raises its Error if none
    has, UnknownPrepared, and PreparedConflict if several have a message of this name.
    """
    if using is not None or not is_sharded():
        return conf.database(using)
    biz, biz_key = checked_names(biz, biz_key)
    found: list[FoundPrepared] = []
    away: dict[str, Error] = {}
    for alias in aliases():
        try:
            found += _look(biz, biz_key, alias)
        except Error as error:
            if connections[alias].in_atomic_block:
                raise  # its owner must know
            away[alias] = error
    if not found and away:
        raise next(iter(away.values()))
    if not found:
        raise UnknownPrepared
    chosen = _one_of(found, biz, biz_key)
    for alias, reason in away.items():
        logger.warning(
            "The database %s was not asked for prepared message %s:%s, which is on %s: %s",
            *(alias, biz, biz_key, chosen, describe(reason)),
            extra=event(
                "prepared.not_asked",
                database=alias,
                biz=biz,
                biz_key=biz_key,
                error=type(reason).__name__,
            ),
        )
    return chosen


def _look(biz: str, biz_key: str, alias: str) -> list[FoundPrepared]:
    rows = PreparedRow.objects.using(alias).filter(of_key(biz, biz_key))
    columns = rows.values_list("topic", "state", "digest")
    row = retrying(columns.first, alias, patience=PATIENCE)
    return [] if row is None else [FoundPrepared(alias, row[0], row[1], bytes(row[2]))]


def _one_of(found: list[FoundPrepared], biz: str, biz_key: str) -> str:
    """Return the alias of the one that is meant; raises PreparedConflict.

    One that is not finished comes before those that are. A topic that was moved has left its
    finished ones behind, so of these the one that is on the database of its topic is meant.
    """
    unfinished = [one for one in found if one.state in UNFINISHED]
    if len(unfinished) == 1:
        return unfinished[0].alias
    if not unfinished:
        at_home = [one for one in found if alias_of(one.topic) == one.alias]
        if len(at_home) == 1:
            return at_home[0].alias
        if len({one.digest for one in found}) == 1:
            return found[0].alias
    raise PreparedConflict(
        f"{biz}:{biz_key} is prepared on several databases,"
        f" {', '.join(one.alias for one in found)}: say which by using=,"
        " over HTTP by “database”."
    )
