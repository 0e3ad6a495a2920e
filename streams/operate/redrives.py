"""Begins to redrive many dead letters at a rate; a step carries it out."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from django.db import connections
from django.utils.translation import gettext as _

from streams.database.retrying import retrying
from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch
from streams.database.transactions import own_transaction
from streams.errors import InvalidValue, RedriveRunning
from streams.models import ConsumerGroup, DeadMessage, Redrive
from streams.models.redrive import MAX_TEXT, valid_rate

# Letters that one statement reads to count them.
PAGE = 500


def begin(
    groups: Iterable[ConsumerGroup],
    using: str,
    *,
    rate: float,
    who: str,
    error_class: str = "",
    ids: Sequence[int] | None = None,
    after: int = 0,
    upto: int | None = None,
    total: int | None = None,
    limit: int | None = None,
) -> Redrive:
    """Begin to redrive the waiting letters of the groups, ``rate`` a second; return the redrive.

    Only those of ``error_class`` if it is given, with ids above ``after`` and up to ``upto``, by
    default all that wait now, or the oldest ``limit`` of them; or only ``ids``. ``total`` is how
    many they are, if somebody has counted them: no more are redriven. Raises InvalidValue, also if
    with ``limit`` none waits, and RedriveRunning if one of the same letters runs.
    """
    valid_rate(rate)
    chosen = list(groups)
    if upto is None:
        upto = DeadMessage.objects.using(using).newest_id()
    if ids is None:
        first = ""
        if limit is not None:
            upto, total = _oldest(chosen, using, error_class, after, upto, limit)
            first = _("the oldest %d") % total
        about = ", ".join([*map(str, chosen), *filter(None, [error_class, first])])
    else:
        total = len(ids)
        about = _("%d dead letters, chosen one by one") % len(ids)
    row = Redrive(
        about=about if len(about) <= MAX_TEXT else f"{about[: MAX_TEXT - 1]}…",
        groups=sorted(group.pk for group in chosen),
        error_class=error_class,
        ids=None if ids is None else sorted(ids),
        after=after,
        upto=upto,
        rate=rate,
        total=total,
        who=who[:MAX_TEXT],
    )
    return retrying(_begin, using, row, using)


def _begin(row: Redrive, using: str) -> Redrive:
    with own_transaction(using):
        # Two that begin the same at once, as a form that is sent twice, take turns.
        groups = ConsumerGroup.objects.using(using).filter(pk__in=row.groups).order_by("pk")
        list(groups.select_for_update().values_list("pk", flat=True))
        for other in Redrive.objects.using(using).running():
            if other.pk == row.pk:
                return row  # it was committed before, and the reply was lost
            if _letters(other) == _letters(row):
                text = _("Redrive %d is redriving these already.") % other.pk
                error = RedriveRunning(text)
                error.number = other.pk
                raise error
        row.save(using=using, force_insert=True)
    return row


def _oldest(
    groups: Iterable[ConsumerGroup], using: str, error_class: str, after: int, upto: int, limit: int
) -> tuple[int, int]:
    """Return up to which id the oldest ``limit`` letters that wait are, and how many there are.

    A letter up to this id may also wait later: one that has failed again, or whose transaction was
    committed late. So the number limits them, too.
    """
    each = (_waiting(group.pk, using, error_class, after, upto) for group in groups)
    ids = list(islice(heapq.merge(*each), limit))
    if not ids:
        raise InvalidValue(_("None of these dead letters waits."))
    return ids[-1], len(ids)


def _waiting(group: int, using: str, error_class: str, after: int, upto: int) -> Iterator[int]:
    statement = sql.WAITING_LETTERS[connections[using].vendor]
    while rows := fetch(using, statement, [group, after, upto, PAGE]):
        ids = [pk for (pk,) in rows]
        after = ids[-1]
        if error_class:
            named = DeadMessage.objects.using(using).filter(pk__in=ids, error_class=error_class)
            ids = list(named.order_by("pk").values_list("pk", flat=True))
        yield from ids


def _letters(row: Redrive) -> object:
    """Return what two requests for the same have in common, also if letters died in between."""
    return (row.groups, row.error_class) if row.ids is None else row.ids
