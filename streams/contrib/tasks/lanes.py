"""Gives each priority a partition of its own, made when a task of it is first enqueued."""

from __future__ import annotations

from streams.log.topics import resolve
from streams.operate.topics import add_partition

# Of the numbers of partitions: those of the priorities above 0 are counted back from here, so that
# a queue without priorities has only its partition 0.
NUMBERS = 1000


def lane_of(priority: int) -> int:
    return -priority % NUMBERS


def rank_of(number: int) -> int:
    """Return the rank of a partition: the highest priority has the lowest."""
    return number if number <= NUMBERS // 2 else number - NUMBERS


def lane(topic: str, priority: int, using: str) -> int:
    """Return the number of the partition of a priority; make sure that it is there."""
    number = lane_of(priority)
    if number and all(number != there for _id, there in resolve(topic, using).partitions):
        add_partition(topic, number, using)
    return number
