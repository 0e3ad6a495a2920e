"""Says on which database alias a topic is: ``EMS["SHARDS"]``, and ``EMS["DATABASE"]`` for the rest.

The answer is the same in every process that has the same settings, and reads no database.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256

from streams.conf import ANY_REST, settings


def alias_of(topic: str) -> str:
    """Return the alias of the database that has the topic.

    An exact name in ``EMS["SHARDS"]`` comes before a prefix, and a longer prefix before a shorter.
    """
    known = settings()
    shards = known.SHARDS
    if not shards or not isinstance(topic, str):  # send() refuses what is not a name
        return known.DATABASE
    if topic in shards:
        return shards[topic]
    for prefix, alias in _prefixes(tuple(shards.items())):
        if topic.startswith(prefix):
            return alias
    return known.DATABASE


def aliases() -> tuple[str, ...]:
    """Return the aliases that have topics: ``EMS["DATABASE"]`` first, then those of the shards."""
    return tuple(dict.fromkeys([settings().DATABASE, *settings().SHARDS.values()]))


def home_of(alias: str) -> str:
    """Return the alias of what the topics on ``alias`` share with those of other shards.

    Check endpoints, API tokens, alarm channels and rules are on ``EMS["DATABASE"]`` only.
    """
    return settings().DATABASE if alias in aliases() else alias


def is_sharded() -> bool:
    """Tell whether topics are on more than one alias."""
    return len(aliases()) > 1


def fingerprint() -> str:
    """Return a text that is the same in all processes which find each topic on the same alias."""
    routes = [settings().DATABASE, sorted(settings().SHARDS.items())]
    return sha256(json.dumps(routes).encode()).hexdigest()[:16]


@lru_cache(maxsize=8)
def _prefixes(shards: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    found = [
        (pattern.removesuffix(ANY_REST), alias)
        for pattern, alias in shards
        if pattern.endswith(ANY_REST)
    ]
    return sorted(found, key=lambda one: len(one[0]), reverse=True)
