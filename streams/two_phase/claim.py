"""Claims prepared messages that are due for a check: each is counted when it is claimed.

So a checker that dies has spent one check, and nothing hangs: the next check is due already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connections
from django.db.models import BooleanField, ExpressionWrapper, Q

from streams.database.sql import prepared as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction
from streams.models import PreparedRow, PreparedState, UtcNow
from streams.models.namespaces import own_range
from streams.runtime_settings import system
from streams.two_phase.schedule import DAY, OVERDUE, pause_after


def due(using: str) -> list[tuple[str, str]]:
    """Return each state and checker with due messages, of all namespaces."""
    return [(state, name) for state, name in fetch(using, sql.DUE[connections[using].vendor])]


def due_checkers(using: str, state: PreparedState = PreparedState.PREPARED) -> list[str]:
    """Return the names of the checkers with due messages of this state, of all namespaces."""
    return [checker for its_state, checker in due(using) if its_state == state]


def claim(
    checker: str, at_most: int, using: str, biz: str | None = None, *, with_body: bool = True
) -> tuple[list[PreparedRow], list[PreparedRow]]:
    """Return the messages to ask ``checker`` about, and those that have no check left.

    The latter are for a person from now on. ``checks`` of the former counts the one to be made, and
    ``is_last`` tells whether it is the last one, by their number or by the age of the message.
    """
    statement = sql.CLAIM[connections[using].vendor]
    with own_transaction(using):
        ids = [pk for (pk,) in fetch(using, statement, [checker, *own_range(), at_most])]
        is_old = ExpressionWrapper(Q(created_at__lt=UtcNow(-DAY)), BooleanField())
        loaded = PreparedRow.objects.using(using).annotate(is_last=is_old)  # type: ignore[no-redef]
        rows = (loaded if with_body else loaded.defer("body")).in_bulk(ids)
        found = [rows[pk] for pk in ids if pk in rows and biz in (None, rows[pk].biz)]
        limit = system("verifyMaxTimes", using)
        over = [row for row in found if row.checks >= limit]
        left = [row for row in found if row.checks < limit]
        for checks in {row.checks for row in left}:
            same = [row.pk for row in left if row.checks == checks]
            PreparedRow.objects.using(using).filter(pk__in=same).update(
                checks=checks + 1, next_at=UtcNow(pause_after(checks + 1, using))
            )
        to_people([row.pk for row in over], using)
    for row in left:
        row.checks += 1
        row.is_last = row.is_last or row.checks >= limit
    return left, over


def give_back(rows: Iterable[PreparedRow], using: str) -> None:
    """Let these be as they were before their claim: nobody was asked, or nobody was there."""
    for row in rows:
        mine = PreparedRow.objects.using(using).filter(
            pk=row.pk, state=PreparedState.PREPARED, checks=row.checks
        )
        mine.update(checks=row.checks - 1, next_at=row.next_at)


def give_up_old(checker: str, at_most: int, using: str) -> list[PreparedRow]:
    """Hand what is overdue and older than a day to a person; return it.

    Also of a checker that is paused, or that no process knows. What is just due may be asked about
    by another process, which knows its checker.
    """
    statement = sql.CLAIM[connections[using].vendor]
    with own_transaction(using):
        ids = [pk for (pk,) in fetch(using, statement, [checker, *own_range(), at_most])]
        old = PreparedRow.objects.using(using).filter(pk__in=ids, created_at__lt=UtcNow(-DAY))
        rows = list(old.filter(next_at__lt=UtcNow(-OVERDUE)).defer("body"))
        to_people([row.pk for row in rows], using)
    return rows


def to_people(ids: Sequence[int], using: str) -> int:
    """Let a person decide about these, if nobody has decided yet; return about how many."""
    if not ids:
        return 0
    rows = PreparedRow.objects.using(using).filter(pk__in=ids, state=PreparedState.PREPARED)
    return rows.update(state=PreparedState.MANUAL, next_at=None)
