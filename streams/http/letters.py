"""Finds the dead letters that a request names, those alone that its token may see."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connections

from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch
from streams.http.access import Caller
from streams.log.foreign import own_rows
from streams.models import ConsumerGroup, DeadMessage

# Letters that one request compares with a class of error, which no index has.
SEARCHED = 10_000


def waiting(
    group: ConsumerGroup,
    using: str,
    *,
    error_class: str | None,
    after: int,
    upto: int,
    limit: int,
) -> tuple[list[int], int | None]:
    """Return at most ``limit`` ids above ``after`` of letters that nobody has redriven.

    And the id after which it goes on; None if there are no more. With a class of error at most
    SEARCHED letters are read. Index: ems_dead_waiting.
    """
    most = limit + 1 if error_class is None else SEARCHED
    statement = sql.WAITING_LETTERS[connections[using].vendor]
    read = [pk for (pk,) in fetch(using, statement, [group.pk, after, upto, most])]
    found = read
    if error_class is not None:
        rows = DeadMessage.objects.using(using).filter(pk__in=read, error_class=error_class)
        found = list(rows.order_by("pk").values_list("pk", flat=True))
    if len(found) > limit:
        return found[:limit], found[limit - 1]
    return found, read[-1] if error_class is not None and len(read) == most else None


def of_ids(
    ids: Sequence[int], caller: Caller, verb: str, using: str, error_class: str | None = None
) -> list[DeadMessage]:
    """Return the letters that wait, and that the caller has the right ``verb`` on.

    Others are left out: an id says nothing of its topic.
    """
    rows = DeadMessage.objects.using(using).waiting().filter(pk__in=ids)
    if error_class is not None:
        rows = rows.filter(error_class=error_class)
    rows = own_rows(rows, using).select_related("group__topic").defer("body", "traceback")
    return [row for row in rows.order_by("pk") if caller.may(verb, place(row.group))]


def place(group: ConsumerGroup) -> str:
    """Return a group as the rights have it: ``orders/mail``."""
    return f"{group.topic.name}/{group.name}"
