"""Gives the HTTP API how groups stand, the rates of topics, and the alarms that fire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from monitoring.alarms.unresolved import unresolved
from monitoring.figures.firing import firing
from monitoring.figures.site import Site
from monitoring.figures.topic import topic_figures
from streams.database.clock import database_now


def overview(using: str) -> dict[str, Any]:
    """Return how the ``groups`` stand, ``topics`` by name, and ``alarms``, of the last hour."""
    open_alarms = unresolved(using)
    site = Site.read(using, database_now(using), alarms=open_alarms)
    alarms = [asdict(one) for one in firing(open_alarms)]
    return {
        "groups": site.standings,
        "topics": {
            one.name: {
                "published_per_second": one.published,
                "published_last_hour": one.in_range,
            }
            for one in topic_figures(site, site.starts)
        },
        "alarms": [
            {name: one[name] for name in ("rule", "text", "severity", "since", "acknowledged_by")}
            for one in alarms
        ],
    }
