"""Keeps on each database which topics are where, so that no process goes by another EMS["SHARDS"].

A process that does would send to one database what the consumers of a topic look for on another.
"""

from __future__ import annotations

from typing import Any

from django.db import connections

from streams.conf import name_prefix
from streams.errors import ConfigurationError
from streams.models import SystemConfig
from streams.sharding import aliases, fingerprint, is_sharded

NAME = "shardsHash"


def routes_agree(using: str) -> bool | None:
    """Tell whether the database has the same routes as this process; None: it has none."""
    row = SystemConfig.objects.using(using).filter(name=_name()).first()
    return None if row is None else row.value == fingerprint()


def make_sure_routes(using: str) -> None:
    """Raise ConfigurationError if the database was written with other routes."""
    if using in aliases() and routes_agree(using) is False:
        raise ConfigurationError(f"{differ(using)} {hint()}")


def differ(using: str) -> str:
    """Return what is wrong where the routes do not agree."""
    return f"EMS['SHARDS'] is not what the database {using!r} knows."


def hint() -> str:
    return "If this is the new setting, and its topics were moved: ems_topics routes --accept"


def accept_routes(using: str) -> None:
    """Write the routes of this process: after a change of ``EMS["SHARDS"]``."""
    rows = SystemConfig.objects.using(using)
    rows.update_or_create(name=_name(), defaults={"value": fingerprint()})


def write_first_routes(*, using: str, **kwargs: Any) -> None:
    """Handle ``post_migrate``: write the routes where there are some, and none are written yet."""
    if not is_sharded() or using not in aliases():
        return
    if SystemConfig._meta.db_table in connections[using].introspection.table_names():
        rows = SystemConfig.objects.using(using)
        rows.get_or_create(name=_name(), defaults={"value": fingerprint()})


def _name() -> str:
    """Return the name of the row: deployments with a namespace have shards of their own."""
    return f"{name_prefix()}{NAME}"
