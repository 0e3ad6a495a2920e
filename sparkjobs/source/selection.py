"""Reads the options by which users of Spark's Kafka source say what to read.

Some of them are other names for options of request.py, and are handed on under these; the rest says
which topics are read, and where each partition begins and ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta

from sparkjobs.errors import BadOption
from sparkjobs.instants import EPOCH

EARLIEST, LATEST = "earliest", "latest"

# An end of the log in JSON, as Kafka's source has it.
ENDS = {-2: EARLIEST, -1: LATEST}

# The options that are read here, as users write them.
NAMES = (
    *("topics", "topicPattern", "startingOffsets", "endingOffsets"),
    *("startingTimestamp", "endingTimestamp", "failOnDataLoss"),
    *("maxMessagesPerTrigger", "maxBytesPerTrigger", "minPartitions"),
)

# Other names, in lower case: of the option, of what it is handed on as.
OTHER_NAMES = {
    "startingtimestamp": "since",
    "endingtimestamp": "until",
}

# What failOnDataLoss decides, unless they are given themselves.
LOSS = ("purged", "holes")

# topic → number of the partition → offset, or one of ENDS.
Places = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Selection:
    """Which topics are read, and from where to where.

    ``topics`` are names, ``pattern`` is a regular expression for the whole name; without both, all
    topics are read. ``starting`` and ``ending`` are an end of the log or offsets.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starting: str | Places = EARLIEST
    ending: str | Places = LATEST
    max_messages: int | None = None
    max_bytes: int | None = None
    min_partitions: int = 1

    @classmethod
    def of(cls, given: MutableMapping[str, str]) -> Selection:
        """Take these options out of ``given``, whose names are in lower case; raises BadOption."""
        for name, other in OTHER_NAMES.items():
            if name in given:
                if other in given:
                    raise BadOption(f"{name} and {other} say the same: give one of them")
                value = given.pop(name)
                given[other] = _iso(value)
        _hand_on_loss(given)
        selection = cls(
            topics=_names(given),
            pattern=_pattern(given.pop("topicpattern", None)),
            starting=_places(given, "startingOffsets", EARLIEST),
            ending=_places(given, "endingOffsets", LATEST),
            max_messages=_positive(given, "maxMessagesPerTrigger"),
            max_bytes=_positive(given, "maxBytesPerTrigger"),
            min_partitions=_positive(given, "minPartitions") or 1,
        )
        if sum(map(bool, (selection.topics, selection.pattern, given.get("topic")))) > 1:
            raise BadOption("topic, topics and topicPattern: give one of them")
        return selection

    def matches(self, topic: str) -> bool:
        if self.topics:
            return topic in self.topics
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None

    @property
    def is_given(self) -> bool:
        """Tell whether it says where to begin or to end."""
        return (self.starting, self.ending) != (EARLIEST, LATEST)

    @property
    def starts_at_end(self) -> bool:
        """Tell whether the beginning of a partition is the end that its log has at the moment."""
        if isinstance(self.starting, str):
            return self.starting == LATEST
        return any(ENDS.get(at) == LATEST for of in self.starting.values() for at in of.values())

    @property
    def is_bounded(self) -> bool:
        """Tell whether it says where to end."""
        return self.ending != LATEST

    def start(self, topic: str, number: int, first: int, end: int) -> int:
        """Return where a partition begins whose log has the offsets ``first`` … ``end`` - 1."""
        return _place(self.starting, EARLIEST, topic, number, first, end)

    def end(self, topic: str, number: int, first: int, end: int) -> int:
        """Return where it ends; this offset is not read."""
        return _place(self.ending, LATEST, topic, number, first, end)

    def check_known(self, partitions: set[tuple[str, int]]) -> None:
        """Check that offsets name partitions that are read; raises BadOption."""
        for places in (self.starting, self.ending):
            if isinstance(places, str):
                continue
            named = {(topic, number) for topic, each in places.items() for number in each}
            if unknown := named - partitions:
                texts = ", ".join(sorted(f"{topic}/{number}" for topic, number in unknown))
                raise BadOption(f"offsets name partitions that are not read: {texts}")


def _place(
    places: str | Places, default: str, topic: str, number: int, first: int, end: int
) -> int:
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


def _places(given: MutableMapping[str, str], name: str, default: str) -> str | Places:
    text = given.pop(name.lower(), default)
    if text in (EARLIEST, LATEST):
        return text
    try:
        found = json.loads(text)
        places = {
            topic: {int(number): _offset(offset) for number, offset in each.items()}
            for topic, each in found.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise BadOption(
            f'{name} must be earliest, latest or like {{"flights": {{"0": 23, "1": -2}}}},'
            f" not {text!r}"
        ) from error
    return places


def _offset(value: object) -> int:
    if type(value) is not int or value < min(ENDS):
        raise ValueError(value)
    return value


def _names(given: MutableMapping[str, str]) -> tuple[str, ...]:
    if "topics" not in given:
        return ()
    names = tuple(name.strip() for name in given.pop("topics").split(","))
    if not all(names):
        raise BadOption("topics must be names with commas between them")
    return names


def _pattern(text: str | None) -> str | None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise BadOption(f"topicPattern {text!r} is not a regular expression: {error}") from error
    return text


def _positive(given: MutableMapping[str, str], name: str) -> int | None:
    text = given.pop(name.lower(), None)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BadOption(f"{name} must be a number above 0, not {text!r}")
    return int(text)


def _iso(text: str) -> str:
    """Return a time that is given in milliseconds since 1970 as an ISO time, others as they are."""
    if not text.isdecimal():
        return text
    try:
        return str(EPOCH + timedelta(milliseconds=int(text)))
    except OverflowError as error:
        raise BadOption(f"{text} is not a time in milliseconds since 1970") from error


def _hand_on_loss(given: MutableMapping[str, str]) -> None:
    """Hand failOnDataLoss on as what to do about what was purged, and about holes."""
    text = given.pop("failondataloss", "true").lower()
    if text not in ("true", "false"):
        raise BadOption(f"failOnDataLoss must be true or false, not {text!r}")
    if text == "false":
        for name in LOSS:
            given.setdefault(name, "skip")
