"""Reads how groups stand: what other apps know of them, and whether a call of theirs hangs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.apps import apps

from streams.database.clock import database_now
from streams.log.calls import slow_calls
from streams.log.condition import Known, Standing, standing
from streams.log.lag import Lag


def standings(lags: Sequence[Lag], using: str) -> list[Standing]:
    """Return how the group of each lag stands, in their order.

    What other apps know of them is from ``ems_known`` of their AppConfig: rates and alarms.
    """
    now = database_now(using)
    known: dict[int, Known] = {}
    for config in apps.get_app_configs():
        if lags and hasattr(config, "ems_known"):
            known |= config.ems_known(using, lags, now)
    return stand(lags, known, now, using)


def stand(
    lags: Sequence[Lag], known: Mapping[int, Known], now: datetime, using: str
) -> list[Standing]:
    """Return the same from what is ``known`` of each group beside its lag and its calls."""
    slow = slow_calls(lags, now, using)
    return [
        standing(
            lag,
            now,
            replace(known.get(lag.group.pk, Known()), call=slow.get(lag.group.pk)),
        )
        for lag in lags
    ]
