"""Says, when ``migrate`` has made or changed the tables, how long they keep what they hold."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from streams import runtime_settings
from streams.observe.mysql_server import missing_tables
from streams.retain.rule import default_rule, span


def announce_retention(
    *, using: str, verbosity: int = 1, plan: Any = (), stdout: Any = None, **kwargs: Any
) -> None:
    """Handle ``post_migrate``: print what is in force, if a migration of EMS was applied."""
    applied = [one for one, is_back in plan or () if one.app_label == "ems" and not is_back]
    if verbosity < 1 or not applied or missing_tables(using):
        return
    out = stdout or sys.stdout
    out.write("\n".join(["", *_lines(using), ""]))


def _lines(using: str) -> list[str]:
    rule = default_rule(using)
    if rule.age is None:
        first = "EMS keeps the messages of this database for ever (messageRetentionDays is 0)."
        hint = "To delete old ones, set it in the admin, or a retention for each topic."
    else:
        first = (
            f"EMS deletes messages after {span(rule.age)}, once every group of their topic has"
            " finished them."
        )
        hint = "Change messageRetentionDays in the admin, or set a retention for each topic."
    second = (
        f"Kept: deliveries {_kept('deliveryRetentionDays', using)}; dead letters"
        f" {_kept('deadRetentionDays', using)}; figures {_kept('figureRetentionDays', using)}."
    )
    return [f"  {first}", f"  {second}", f"  {hint}"]


def _kept(name: str, using: str) -> str:
    days = runtime_settings.system(name, using)
    return span(timedelta(days=days)) if days else "for ever"
