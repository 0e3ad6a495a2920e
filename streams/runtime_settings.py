"""Reads the run-time settings: rows of SystemConfig override the defaults of conf.py."""

from __future__ import annotations

import os
import time
from typing import Any

from streams.conf import DEFAULTS, FRESH_SECONDS
from streams.database.transactions import in_test_case

_cache: dict[str, tuple[float, dict[str, Any]]] = {}


def system(name: str, using: str) -> Any:
    """Return the run-time setting ``name`` on ``using``, at most FRESH_SECONDS old."""
    expires, values = _cache.get(using, (0.0, DEFAULTS))
    if time.monotonic() >= expires:
        from streams.models import SystemConfig

        values = DEFAULTS | SystemConfig.objects.using(using).overrides()
        if not in_test_case(using):
            _cache[using] = (time.monotonic() + FRESH_SECONDS, values)
    return values[name]


def forget(**kwargs: Any) -> None:
    """Drop all cached settings."""
    _cache.clear()


os.register_at_fork(after_in_child=forget)
