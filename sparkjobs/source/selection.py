"""Reads the options that say which topics are read, and where each partition begins and ends.

They are those of Spark's Kafka source; kafka.py has its other names for options of request.py.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sparkjobs.errors import BadOption
from sparkjobs.source import kafka
from sparkjobs.source.places import (
    EARLIEST,
    ENDS,
    LATEST,
    ByPartition,
    Places,
    assigned,
    place,
    places,
    times,
)

# The options that are read here, as users write them.
NAMES = (
    *("topics", "topicPattern", "startingOffsets", "endingOffsets"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss"),
    *("maxMessagesPerTrigger", "maxBytesPerTrigger", "minPartitions"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "includeHeaders", "assign"),
    *(name for name in kafka.OTHER_NAMES),
)

# What failOnDataLoss decides, unless they are given themselves.
LOSS = ("purged", "holes")

# As Kafka's source has it.
MAX_DELAY = timedelta(minutes=15)
UNITS = {
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "min": "minutes",
    "h": "hours",
    "d": "days",
}


@dataclass(frozen=True)
class Selection:
    """Which topics are read, and from where to where.

    ``topics`` are names, ``pattern`` is a regular expression for the whole name, ``assigned`` are
    partitions; without these, all topics are read. ``starting`` and ``ending`` are an end of the
    log or offsets; the times are of single partitions.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[tuple[str, int]] = frozenset()
    starting: str | Places = EARLIEST
    ending: str | Places = LATEST
    starting_times: ByPartition[datetime] = field(default_factory=dict)
    ending_times: ByPartition[datetime] = field(default_factory=dict)
    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay: timedelta = MAX_DELAY
    min_partitions: int = 1
    by_kafka: bool = False  # its names choose the topics

    @classmethod
    def of(cls, given: MutableMapping[str, str]) -> Selection:
        """Take these options out of ``given``, whose names are in lower case; raises BadOption."""
        by_kafka = any(name.lower() in given for name in kafka.TOPICS)
        kafka.translate(given)
        _hand_on_loss(given)
        if given.pop("includeheaders", "true").lower() != "true":
            raise BadOption("includeHeaders must be true: name the columns without them by columns")
        selection = cls(
            topics=_names(given),
            pattern=_pattern(given.pop("topicpattern", None)),
            assigned=assigned(given.pop("assign", None)),
            starting=places(given.pop("startingoffsets", EARLIEST), "startingOffsets"),
            ending=places(given.pop("endingoffsets", LATEST), "endingOffsets"),
            starting_times=_times(given, "startingOffsetsByTimestamp", "since"),
            ending_times=_times(given, "endingOffsetsByTimestamp", "until"),
            max_messages=_positive(given, "maxMessagesPerTrigger"),
            max_bytes=_positive(given, "maxBytesPerTrigger"),
            max_delay=_delay(given),  # before what it is of no use without
            min_messages=_positive(given, "minOffsetsPerTrigger"),
            min_partitions=_positive(given, "minPartitions") or 1,
            by_kafka=by_kafka,
        )
        chosen = (selection.topics, selection.pattern, selection.assigned, given.get("topic"))
        if sum(map(bool, chosen)) > 1:
            raise BadOption("topic, topics, topicPattern and assign: give one of them")
        most = selection.max_messages
        if most is not None and (selection.min_messages or 0) > most:
            raise BadOption("minOffsetsPerTrigger must not be more than maxMessagesPerTrigger")
        return selection

    def matches(self, topic: str, number: int) -> bool:
        if self.topics:
            return topic in self.topics
        if self.assigned:
            return (topic, number) in self.assigned
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
        return self.ending != LATEST or bool(self.ending_times)

    def start(self, topic: str, number: int, first: int, end: int) -> int:
        """Return where a partition begins whose log has the offsets ``first`` … ``end`` - 1."""
        return place(self.starting, EARLIEST, topic, number, first, end)

    def end(self, topic: str, number: int, first: int, end: int) -> int:
        """Return where it ends; this offset is not read."""
        return place(self.ending, LATEST, topic, number, first, end)

    def check_there(self, partitions: set[tuple[str, int]]) -> None:
        """Check that what is chosen by its name is among ``partitions``; raises BadOption."""
        if missing := set(self.topics) - {topic for topic, _number in partitions}:
            raise BadOption(f"there is no topic {', '.join(map(repr, sorted(missing)))}")
        if absent := self.assigned - partitions:
            raise BadOption(f"assign names partitions that are not there: {_shown(absent)}")

    def check_known(self, partitions: set[tuple[str, int]]) -> None:
        """Check that offsets and times name partitions that are read; raises BadOption."""
        for given in (self.starting, self.ending, self.starting_times, self.ending_times):
            if isinstance(given, str):
                continue
            named = {(topic, number) for topic, each in given.items() for number in each}
            if unknown := named - partitions:
                raise BadOption(f"offsets name partitions that are not read: {_shown(unknown)}")


def _shown(partitions: set[tuple[str, int]] | frozenset[tuple[str, int]]) -> str:
    return ", ".join(sorted(f"{topic}/{number}" for topic, number in partitions))


def _times(given: MutableMapping[str, str], name: str, other: str) -> ByPartition[datetime]:
    """Return times of partitions, which exclude the ``other`` option, of one for all."""
    found = times(given.pop(name.lower(), None), name)
    if found and other in given:
        raise BadOption(f"{name} and {other} say the same: give one of them")
    return found


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


def _delay(given: MutableMapping[str, str]) -> timedelta:
    """Return what maxTriggerDelay says, as 15m; a bare number is of milliseconds."""
    text = given.pop("maxtriggerdelay", None)
    if text is None:
        return MAX_DELAY
    if "minoffsetspertrigger" not in given:
        raise BadOption("maxTriggerDelay is of no use without minOffsetsPerTrigger")
    found = re.fullmatch(r"(\d{1,9}) *(\w*)", text.strip().lower())
    if found is None or (found[2] or "ms") not in UNITS:
        raise BadOption(f"maxTriggerDelay must be like 15m, 30s or 500ms, not {text!r}")
    return timedelta(**{UNITS[found[2] or "ms"]: int(found[1])})


def _hand_on_loss(given: MutableMapping[str, str]) -> None:
    """Hand failOnDataLoss on as what to do about what was purged, and about holes."""
    text = given.pop("failondataloss", "true").lower()
    if text not in ("true", "false"):
        raise BadOption(f"failOnDataLoss must be true or false, not {text!r}")
    if text == "false":
        for name in LOSS:
            given.setdefault(name, "skip")
