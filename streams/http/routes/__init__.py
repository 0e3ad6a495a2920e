"""Defines the endpoints, one subject in each file."""

from streams.http.routes import (
    dead,
    groups,
    health,
    log,
    messages,
    overview,
    prepared,
    produce,
    pull,
    stress,
    topics,
)

ROUTERS = tuple(
    module.router
    for module in (
        *(produce, prepared, pull, log),
        *(topics, groups, messages, dead, overview, stress, health),
    )
)
