"""Wraps ``EMS["MIDDLEWARE"]`` of the project around every handler call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from django.core.signals import setting_changed

from streams.conf import load, settings

Call = Callable[[Any], Any]


@cache
def middleware() -> tuple[Callable[[Call, Any], Any], ...]:
    """Import ``EMS["MIDDLEWARE"]``, the outermost first; raises ConfigurationError."""
    return tuple(load(path, "MIDDLEWARE") for path in settings().MIDDLEWARE)


def wrapped(handler: Call) -> Call:
    """Return ``handler`` inside the middleware of the project."""
    for layer in reversed(middleware()):
        handler = partial(layer, handler)
    return handler


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "EMS":
        middleware.cache_clear()


setting_changed.connect(_reload)
