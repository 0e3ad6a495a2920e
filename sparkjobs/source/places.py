"""Reads the JSON by which users of Spark's Kafka source name partitions, offsets and times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sparkjobs.errors import BadOption
from sparkjobs.instants import EPOCH

EARLIEST, LATEST = "earliest", "latest"

# An end of the log in JSON, as Kafka's source has it.
ENDS = {-2: EARLIEST, -1: LATEST}

Value = TypeVar("Value")

# topic → number of the partition → value.
ByPartition = Mapping[str, Mapping[int, Value]]
# The values are offsets, or one of ENDS.
Places = ByPartition[int]


def places(text: str, name: str) -> str | Places:
    """Return an end of the log, or offsets; raises BadOption, which names the option ``name``."""
    if text in (EARLIEST, LATEST):
        return text
    shown = 'earliest, latest or like {"flights": {"0": 23, "1": -2}}'
    return _by_partition(text, name, _offset, shown)


def times(text: str | None, name: str) -> ByPartition[datetime]:
    """Return the times of partitions, which are milliseconds since 1970; raises BadOption."""
    if text is None:
        return {}
    return _by_partition(text, name, _time, 'like {"flights": {"0": 1772366400000}}')


def assigned(text: str | None) -> frozenset[tuple[str, int]]:
    """Return the partitions that the option assign names; raises BadOption."""
    if text is None:
        return frozenset()
    try:
        found = {
            (topic, _number(number))
            for topic, numbers in json.loads(text).items()
            for number in _list(numbers)
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise BadOption(f'assign must be like {{"flights": [0, 1]}}, not {text!r}') from error
    if not found:
        raise BadOption("assign names no partition")
    return frozenset(found)


def place(places: str | Places, default: str, topic: str, number: int, first: int, end: int) -> int:
    """Return the offset of a partition whose log has the offsets ``first`` … ``end`` - 1."""
    if isinstance(places, str):
        return first if places == EARLIEST else end
    offset = places.get(topic, {}).get(number)
    which = default if offset is None else ENDS.get(offset)
    if which is not None:
        return first if which == EARLIEST else end
    assert offset is not None  # noqa: S101 - else it would be the default
    if offset > end:
        raise BadOption(f"{topic}/{number} ends before {end}: there is no offset {offset}")
    return offset


def _by_partition(
    text: str, name: str, value: Callable[[Any], Value], shown: str
) -> ByPartition[Value]:
    try:
        return {
            topic: {_number(int(number)): value(given) for number, given in each.items()}
            for topic, each in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise BadOption(f"{name} must be {shown}, not {text!r}") from error


def _offset(value: object) -> int:
    if type(value) is not int or value < min(ENDS):
        raise ValueError(value)
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _time(value: object) -> datetime:
    return EPOCH + timedelta(milliseconds=_number(value))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
