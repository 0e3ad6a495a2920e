"""Counts what EMS has written: the rows in every one of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import apps


def rows(using: str = "default") -> dict[str, int]:
    """Return the number of rows in each table of EMS."""
    return {
        model._meta.db_table: model._base_manager.using(using).count()
        for model in apps.get_app_config("ems").get_models()
    }


@contextmanager
def nothing_written(using: str = "default") -> Iterator[None]:
    """Check that the block does not change the number of rows in any table of EMS."""
    before = rows(using)
    yield
    assert rows(using) == before
