"""Reads how groups stand: their lag, what other apps know of them, and whether a call hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.apps import apps

from streams.database.clock import database_now
from streams.log.calls import slow_calls
from streams.log.condition import Known, Standing, standing
from streams.log.counting import count_each
from streams.log.lag import Lag, countable, lags
from streams.log.rates import held_back
from streams.models import ConsumerGroup


def standings(
    groups: Iterable[ConsumerGroup], using: str, at_most: int | None = None
) -> list[Standing]:
    """Return how each of ``groups`` stands, in their order; counts end at ``at_most``.

    What other apps know of them is from ``ems_known`` of their AppConfig: rates and alarms.
    """
    chosen = list(groups)
    counts = None if at_most is None else count_each(countable(chosen, using), at_most, using)
    found = lags(chosen, using, counts)
    now = database_now(using)
    known: dict[int, Known] = {}
    for config in apps.get_app_configs():
        if found and hasattr(config, "ems_known"):
            known |= config.ems_known(using, found, now)
    return stand(found, known, now, using)


def stand(
    lags: Sequence[Lag], known: Mapping[int, Known], now: datetime, using: str
) -> list[Standing]:
    """Return the same from what is ``known`` of each group beside its lag, calls and rate."""
    slow = slow_calls(lags, now, using)
    held = held_back((lag.group for lag in lags), using)
    return [
        standing(
            lag,
            now,
            replace(
                known.get(lag.group.pk, Known()),
                call=slow.get(lag.group.pk),
                held_back=lag.group.pk in held,
            ),
        )
        for lag in lags
    ]
