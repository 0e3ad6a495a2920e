"""Begins to redrive many dead letters at a rate; a step carries it out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Max
from django.utils.translation import gettext as _

from streams.database.retrying import retrying
from streams.models import ConsumerGroup, DeadMessage, Redrive
from streams.models.redrive import MAX_TEXT, valid_rate


def begin(
    groups: Iterable[ConsumerGroup],
    using: str,
    *,
    rate: float,
    who: str,
    error_class: str = "",
    ids: Sequence[int] | None = None,
    upto: int | None = None,
    total: int | None = None,
) -> Redrive:
    """Begin to redrive the waiting letters of the groups, ``rate`` a second; return the redrive.

    Only those of ``error_class`` if it is given, with ids up to ``upto``, by default all that wait
    now; or only ``ids``. ``total`` is how many they are, if somebody has counted them. Raises
    InvalidValue.
    """
    valid_rate(rate)
    chosen = list(groups)
    if upto is None:
        newest = DeadMessage.objects.using(using).aggregate(newest=Max("pk"))["newest"]
        upto = newest or 0
    if ids is None:
        about = ", ".join([*map(str, chosen), *filter(None, [error_class])])
    else:
        total = len(ids)
        about = _("%d dead letters, chosen one by one") % len(ids)
    return retrying(
        lambda: Redrive.objects.using(using).create(
            about=about if len(about) <= MAX_TEXT else f"{about[: MAX_TEXT - 1]}…",
            groups=[group.pk for group in chosen],
            error_class=error_class,
            ids=None if ids is None else sorted(ids),
            upto=upto,
            rate=rate,
            total=total,
            who=who[:MAX_TEXT],
        ),
        using,
    )
