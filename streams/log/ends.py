"""Remembers, in this process, the highest end of each log that it has seen.

After a failover the database may have lost commits, and its own memory with them. So each process
keeps what it has seen committed: how far each log had come, and how often it had been rewound.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streams.database.remembered import Forgettable
from streams.database.transactions import in_transaction


class End(NamedTuple):
    """How far a log had come: its next offset, and its epoch."""

    offset: int
    epoch: int


_lock = threading.Lock()
# Of each alias: partition id → the highest end that was seen.
_seen: Forgettable[str, dict[int, End]] = Forgettable(survives_forks=True)


def seen(using: str) -> dict[int, End]:
    """Return a copy of what this process has seen, by partition.

    What is read after this call, on the same database, is not lower, unless the log was rewound.
    """
    return dict(_seen.get(using, ()))


def end(partition_id: int, using: str) -> End | None:
    """Return the highest end that this process has seen of a partition; None if none."""
    return _seen.get(using, {}).get(partition_id)


def remember(ends: Mapping[int, End], using: str) -> dict[int, End]:
    """Remember ``ends``, which are committed; return, where the epoch has risen, the end before.

    In a transaction nothing is remembered: what it reads may be rolled back.
    """
    if in_transaction(using):
        return {}
    return recall(ends, using)


def recall(ends: Mapping[int, End], using: str) -> dict[int, End]:
    """Remember ``ends``, read before the open transaction; return what ``remember`` returns."""
    with _lock:
        return dict(_raised(ends, _seen.setdefault(using, {})))


def _raised(ends: Mapping[int, End], known: dict[int, End]) -> Iterator[tuple[int, End]]:
    for partition_id, new in ends.items():
        old = known.get(partition_id)
        if old is None or new.offset > old.offset:
            known[partition_id] = new
            if old is not None and new.epoch > old.epoch:
                yield partition_id, old
