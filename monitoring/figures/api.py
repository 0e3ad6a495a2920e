"""Gives the HTTP API the rates of topics and groups, and the alarms that fire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from monitoring.alarms.unresolved import unresolved
from monitoring.figures.firing import firing
from monitoring.figures.group import group_figures
from monitoring.figures.site import Site
from monitoring.figures.topic import topic_figures
from streams.database.clock import database_now


def overview(using: str) -> dict[str, Any]:
    """Return ``topics`` by name, ``groups`` by topic and name, and ``alarms``, of the last hour."""
    site = Site.read(using, database_now(using))
    alarms = [asdict(one) for one in firing(unresolved(using))]
    return {
        "topics": {
            one.name: {
                "published_per_second": one.published,
                "published_last_hour": one.in_range,
            }
            for one in topic_figures(site, site.starts)
        },
        "groups": {
            (one.topic, one.name): {
                "published_per_second": one.published,
                "consumed_per_second": one.consumed,
                "clear_seconds": one.clearing.time and one.clearing.time.total_seconds(),
            }
            for one in group_figures(site)
        },
        "alarms": [
            {name: one[name] for name in ("rule", "text", "severity", "since", "acknowledged_by")}
            for one in alarms
        ],
    }
