"""Looks up the topics that the sink writes to, and the settings that hold for a write."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparkjobs.database import Connection, fetch
from sparkjobs.errors import BadRow

WRITABLE = ("read-write", "write-only")

# As streams/conf.py has them.
DEFAULTS = {"msgMaxSizeInBytes": 4210688, "dedupWindowSeconds": 600}


@dataclass(frozen=True)
class TargetTopic:
    """A topic that takes messages, with the ids of its partitions by their numbers."""

    id: int
    name: str
    partitions: tuple[int, ...]


def writable(connection: Connection, name: str) -> TargetTopic:
    """Return the topic; raises BadRow if it is not there, or takes no messages."""
    rows = fetch(
        connection,
        "SELECT t.`id`, t.`access`, p.`id` FROM `ems_partition` p"
        " JOIN `ems_topic` t ON t.`id` = p.`topic_id` WHERE t.`name` = %s ORDER BY p.`number`",
        [name],
    )
    if not rows:
        raise BadRow(f"there is no topic {name!r}: create it first (manage.py ems_topics create)")
    id_, access, _partition = rows[0]
    if access not in WRITABLE:
        raise BadRow(f"the topic {name!r} is {access}: it takes no messages at present")
    return TargetTopic(id_, name, tuple(row[2] for row in rows))


def setting(connection: Connection, name: str) -> int:
    """Return a run-time setting that is a number above 0."""
    rows = fetch(connection, "SELECT `value` FROM `ems_system_config` WHERE `name` = %s", [name])
    value = json.loads(rows[0][0]) if rows else DEFAULTS[name]
    # A row that is not valid leaves the default in force, as in streams/runtime_settings.py.
    return value if type(value) is int and value > 0 else DEFAULTS[name]
