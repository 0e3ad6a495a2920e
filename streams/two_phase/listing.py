"""Lists prepared messages page by page, for programs: each page is a bounded read."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import F

from streams.models import PreparedRow
from streams.models.prepared import UNDECIDED


def is_by_key(biz: str | None, states: Collection[str] | None) -> bool:
    """Tell whether a list is in the order of the keys of one business; else it is by id."""
    return biz is not None and not _are_undecided(states)


def rows_after(
    after: int | str | None,
    limit: int,
    using: str,
    *,
    biz: str | None = None,
    states: Collection[str] | None = None,
) -> list[PreparedRow]:
    """Return at most ``limit`` rows behind ``after``, without their bodies.

    ``after`` is a key of the business if the list is by key, and an id otherwise. Rows of decided
    states are not looked for: there are many, and no index has them in this order. So the caller
    leaves out what has another state.
    """
    rows = PreparedRow.objects.using(using).defer("body")
    if is_by_key(biz, states):
        rows = rows.filter(biz=biz)
        if after is not None:
            rows = rows.filter(biz_key__gt=after)
        return list(rows.order_by("biz_key")[:limit])  # ems_prepared_key
    rows = rows.filter(pk__gt=after or 0)
    if states is None or not _are_undecided(states):
        return list(rows.order_by("pk")[:limit])
    if biz is not None:
        rows = rows.filter(biz=biz)
    # Not by the id alone: the server would read the primary key, past all that were sent.
    return list(rows.filter(state__in=states).order_by(F("pk") + 0)[:limit])  # ems_prepared_due


def _are_undecided(states: Collection[str] | None) -> bool:
    return states is not None and set(states) <= {str(one) for one in UNDECIDED}
