"""Chooses the partition that a job or a write sends a message to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from sparkjobs.errors import BadOption
from streams.rules.partition import checked_choice, partition_of


@dataclass(frozen=True)
class Placement:
    """The choice of the partition of ``topic`` for a message, as a send would make it.

    ``path`` is the project's own partitioner, ``EMS["PARTITIONER"]``, or "".
    """

    topic: str
    count: int
    path: str

    def partitioner(self) -> Callable[[str | None, str | None, int], int]:
        """Return a function of key, headers (JSON) and a number, for messages without a key.

        Raises BadOption if the project's own cannot be imported here: another one would break the
        order by key. The function raises InvalidMessage for a choice that is not a partition.
        """
        if not self.path or self.count == 1:
            return self._by_key
        module, _, name = self.path.rpartition(".")
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise BadOption(
                f"EMS['PARTITIONER'] {self.path} cannot be imported where the job runs: {error}"
            ) from error

        def chosen(key: str | None, headers: str | None, turn: int) -> int:
            number = found(self.topic, key, json.loads(headers) if headers else {}, self.count)
            return checked_choice(number, self.path, self.count)

        return chosen

    def _by_key(self, key: str | None, headers: str | None, turn: int) -> int:
        return turn % self.count if key is None else partition_of(key, self.count)
