"""Reads the run-time settings: rows of SystemConfig override the defaults of conf.py."""

from __future__ import annotations

import time
from typing import Any

from streams.conf import DEFAULTS, FRESH_SECONDS
from streams.database.remembered import Fresh

_cache: Fresh[str, dict[str, Any]] = Fresh()
forget = _cache.clear


def system(name: str, using: str) -> Any:
    """Return the run-time setting ``name`` on ``using``, at most FRESH_SECONDS old."""
    values = _cache.fresh(using)
    if values is None:
        from streams.models import SystemConfig

        until = time.monotonic() + FRESH_SECONDS
        values = DEFAULTS | SystemConfig.objects.using(using).overrides()
        _cache.keep(using, values, until, using)
    return values[name]
