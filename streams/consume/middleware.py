"""Wraps ``EMS["MIDDLEWARE"]`` of the project around every handler call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from django.core.signals import setting_changed

from streams.conf import load, settings
from streams.consume.handler import is_async
from streams.errors import ConfigurationError

Call = Callable[[Any], Any]


@cache
def middleware() -> tuple[Callable[[Call, Any], Any], ...]:
    """Import ``EMS["MIDDLEWARE"]``, the outermost first; raises ConfigurationError."""
    return tuple(map(_layer, settings().MIDDLEWARE))


def _layer(path: str) -> Callable[[Call, Any], Any]:
    layer = load(path, "MIDDLEWARE")
    if is_async(layer):
        raise ConfigurationError(
            f"EMS['MIDDLEWARE'] names {path}, which is async: write a plain function."
        )
    return layer


def wrapped(handler: Call) -> Call:
    """Return ``handler`` inside the middleware of the project."""
    for layer in reversed(middleware()):
        handler = partial(layer, handler)
    return handler


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "EMS":
        middleware.cache_clear()


setting_changed.connect(_reload)
