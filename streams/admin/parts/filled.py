"""Keeps tables out of the index of the admin until they have rows."""

from __future__ import annotations

import time
from typing import Any

from django.db.models import Model
from django.http import HttpRequest

from streams.admin.alarm import Said
from streams.admin.parts.look import look
from streams.log.counting import count_each
from streams.sharding import aliases

# In seconds. The index asks for its lists on every page of the admin, also on those of others.
FRESH = 60.0

_filled: set[type[Model]] = set()  # for good
_asked_at = -FRESH


def is_filled(model: type[Model], tables: list[type[Model]]) -> bool:
    """Tell whether ``model`` has had rows, on any database; at most FRESH seconds old if not.

    All ``tables`` are looked at together, by one statement on each database that answers.
    """
    global _asked_at
    now = time.monotonic()
    if model not in _filled and now - _asked_at >= FRESH:
        _asked_at = now  # first, so that no other request asks, too
        look("filled", aliases(), lambda alias: _look(alias, tables))
    return model in _filled


class ListedOnceFilled:
    """A ModelAdmin whose table is in the index once it has rows; its URL shows it before, too."""

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        page: Any = self
        registry = page.admin_site._registry
        tables = [model for model, one in registry.items() if isinstance(one, ListedOnceFilled)]
        found: dict[str, bool] = super().get_model_perms(request)  # type: ignore[misc]
        return found if is_filled(page.model, tables) else {}


def _look(alias: str, tables: list[type[Model]]) -> list[Said]:
    rows: dict[type[Model], Any] = {one: one._base_manager.using(alias).all() for one in tables}
    found = count_each(rows, 1, alias)
    _filled.update(one for one, count in found.items() if count)
    return []
