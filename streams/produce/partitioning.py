"""Chooses the partition that a message goes to."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

from streams.conf import load, settings
from streams.errors import InvalidMessage, UnknownPartition, describe
from streams.rules.partition import checked_choice, partition_of

# The next partition of this process for messages without a key. It begins at a random number, so
# that many short processes do not all fill partition 0.
_turn = itertools.count(random.randrange(1 << 16))  # noqa: S311


def choose(
    topic: str,
    partitions: tuple[tuple[int, int], ...],
    key: str | None,
    headers: Mapping[str, str] | None,
    number: Any,
) -> tuple[int, int]:
    """Return (id, number) of a partition: of ``number``, else of ``key``, else the next in turn.

    ``EMS["PARTITIONER"]`` decides where the topic has several and none is wanted. Raises
    UnknownPartition, and InvalidMessage for a partitioner that fails.
    """
    if number is not None:
        return wanted(partitions, number)
    if len(partitions) == 1:
        return partitions[0]
    if (path := settings().PARTITIONER) is not None:
        return partitions[_partitioned(path, topic, key, headers or {}, len(partitions))]
    if key is not None:
        return partitions[partition_of(key, len(partitions))]
    return partitions[next(_turn) % len(partitions)]


def wanted(partitions: tuple[tuple[int, int], ...], number: Any) -> tuple[int, int]:
    """Return (id, number) of the partition ``number``; raises UnknownPartition."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise UnknownPartition(f"partition must be a number, not {number!r}.")
    if 0 <= number < len(partitions) and partitions[number][1] == number:
        return partitions[number]
    for one in partitions:  # those that were added for a purpose have numbers of their own
        if one[1] == number:
            return one
    raise UnknownPartition(
        f"There is no partition {number}: the topic has {len(partitions)}, from 0 on."
    )


def _partitioned(
    path: str, topic: str, key: str | None, headers: Mapping[str, str], count: int
) -> int:
    """Return the number that the project's partitioner gives; raises InvalidMessage."""
    partitioner = load(path, "PARTITIONER")
    try:
        number = partitioner(topic, key, headers, count)
    except Exception as error:
        raise InvalidMessage(f"The partitioner {path} failed: {describe(error)}") from error
    return checked_choice(number, path, count)
