"""Defines the endpoints, one subject in each file."""

from streams.http.routes import (
    acts,
    dead,
    deletion,
    groups,
    health,
    held_keys,
    log,
    messages,
    overview,
    prepared,
    produce,
    pull,
    redrives,
    replays,
    stress,
    topics,
)

ROUTERS = tuple(
    module.router
    for module in (
        *(produce, prepared, pull, log),
        *(topics, deletion, groups, acts, held_keys, replays, messages, dead, redrives),
        *(overview, stress),
    )
)
# Without the version in their path: probes and scrapers are set up once.
UNVERSIONED = (health.router,)
