"""Lets kombu find the transport of ``ems://``, and does not load kombu for it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from django.conf import settings

ALIASES = "kombu.transport"
TRANSPORT = "streams.celery.transport:Transport"


class _OnImport(MetaPathFinder):
    """Waits for the module that has the aliases, which a project may import at any time."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != ALIASES:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _add(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _add(module: ModuleType) -> None:
    module.TRANSPORT_ALIASES["ems"] = TRANSPORT


def add_alias() -> None:
    """Add the alias ``ems`` now, or when kombu is imported."""
    if (module := sys.modules.get(ALIASES)) is not None:
        _add(module)
    elif not any(isinstance(finder, _OnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OnImport())


def configured() -> tuple[Any, Any]:
    """Return the URL of Celery's broker and its transport options: of the settings, or Celery's."""
    url = getattr(settings, "CELERY_BROKER_URL", None)
    options = getattr(settings, "CELERY_BROKER_TRANSPORT_OPTIONS", None)
    if "celery" in sys.modules:  # its configuration may not be in Django's settings
        from celery import current_app

        url = url or current_app.conf.broker_url
        options = options or current_app.conf.broker_transport_options
    return url, options or {}


def is_broker() -> bool:
    """Tell whether EMS is Celery's broker."""
    url, _options = configured()
    return isinstance(url, str) and url.startswith("ems:")
