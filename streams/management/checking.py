"""Lets the commands of EMS start while a database is away."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand


class CheckedUnconnected(BaseCommand):
    """A command whose checks connect to no database.

    Such a command works with the databases that answer, or waits for its own. From Django 6.1 on
    the checks of each model ask every database of the project, unless they are told which: a
    command would not start while any of them is away.
    """

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        given: Any = super().get_check_kwargs(options)  # the stubs know of the tags only
        return {**given, "databases": []}
