"""Names the topics of queues, and says on which database they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections

from streams.conf import ANY_REST, settings
from streams.errors import ConfigurationError
from streams.sharding import alias_of

# Celery's workers are one consumer group on each topic.
GROUP = "celery"
MOST_PRIORITY = 255

# What a topic must not have in its name; and the sign that stands before what replaces it.
_OTHERS = re.compile(r"[^\w.\-]")


@dataclass(frozen=True)
class Naming:
    """The names of the topics of one broker URL.

    ``steps``: the priorities that have a topic of their own; none: all messages of a queue are in
    one topic, in the order in which they were sent.
    """

    using: str
    prefix: str = "celery"
    steps: Sequence[int] = ()

    @classmethod
    def of(cls, host: str | None, options: Mapping[str, Any]) -> Naming:
        """Return what ``ems://host`` and the transport options mean; raises ConfigurationError."""
        using = settings().DATABASE
        if host:
            # A URL does not keep capitals.
            found = [alias for alias in connections if alias.lower() == host.lower()]
            if not found:
                raise ConfigurationError(
                    f"ems://{host} names no database: it must be “ems://” or an alias in DATABASES."
                )
            using = found[0]
        if not connections.settings[using]["AUTOCOMMIT"]:
            raise ConfigurationError(
                f"AUTOCOMMIT is off in DATABASES[{using!r}]: nobody would commit what Celery sends"
                " after a task has ended. Name a database where it is on: ems://alias"
            )
        steps = options.get("priority_steps") or ()
        if not all(type(step) is int and 0 <= step <= MOST_PRIORITY for step in steps):
            raise ConfigurationError(
                f"The transport option priority_steps must be numbers from 0 to {MOST_PRIORITY},"
                f" not {steps!r}."
            )
        naming = cls(using, options.get("prefix", cls.prefix), sorted(steps, reverse=True))
        if not host and (pattern := naming._on_another_shard()):
            there = alias_of(pattern)
            raise ConfigurationError(
                f'EMS["SHARDS"] puts {pattern} on {there!r}, and the broker ems:// is on {using!r}.'
                f" Name the database of its topics: ems://{there}"
            )
        return naming

    def _on_another_shard(self) -> str:
        """Return the topics of the broker that EMS["SHARDS"] puts on another database, or ""."""
        ours = (f"{self.prefix}.", f"{self.prefix}:")
        named = [pattern for pattern in settings().SHARDS if pattern.startswith(ours)]
        patterns = (*named, *(name + ANY_REST for name in ours))
        return next((one for one in patterns if alias_of(one) != self.using), "")

    def topic(self, queue: str, priority: int | None = None) -> str:
        """Return the topic of the messages of ``queue`` with ``priority``; a high one is urgent."""
        name = f"{self.prefix}.{_OTHERS.sub(_replaced, queue)}"
        step = next((step for step in self.steps if (priority or 0) >= step), 0)
        return f"{name}:{step}" if step else name

    def topics(self, queue: str) -> list[str]:
        """Return all topics of ``queue``, the most urgent first."""
        return list(dict.fromkeys(self.topic(queue, step) for step in (*self.steps, 0)))

    @property
    def control(self) -> str:
        """The topic of what is for processes, and not for tasks: commands, replies, events."""
        return f"{self.prefix}:control"

    @property
    def bindings(self) -> str:
        """The topic that says which queues are bound to which exchanges."""
        return f"{self.prefix}:bindings"


def _replaced(match: re.Match[str]) -> str:
    return f":{ord(match[0]):x}:"
