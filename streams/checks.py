"""System checks: what would make EMS misbehave, said before it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.db import connections

from streams.conf import settings
from streams.errors import ConfigurationError, StreamsError
from streams.registry import autodiscover


@register("ems")
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    try:
        settings()
    except (ConfigurationError, TypeError) as error:
        return [Error(str(error), hint="See docs/settings.md.", id="ems.E001")]
    return []


@register("ems")
def check_consumers(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    try:
        autodiscover()
    except StreamsError as error:
        return [Error(str(error), hint="See the consumers.py of your apps.", id="ems.E003")]
    return []


@register("ems", "database")
def check_binlog(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    if check_settings():
        return []
    alias = settings().DATABASE
    if alias not in (databases or ()) or connections[alias].vendor != "mysql":
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_format")
        enabled, binlog_format = cursor.fetchone()
    if enabled and binlog_format == "STATEMENT":
        return [
            Error(
                f"{alias!r} has binlog_format=STATEMENT, which READ COMMITTED forbids.",
                hint="Set binlog_format=ROW.",
                id="ems.E002",
            )
        ]
    return []
