"""Takes the names that options of Spark's Kafka source have: as other names of ours, or not at all.

There is one mechanism for each thing that can be said, whichever name it is said by.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from datetime import timedelta

from sparkjobs.errors import BadOption
from sparkjobs.instants import EPOCH

# Kafka's names that choose topics. Where one of them is given, a body is in the column value.
TOPICS = ("subscribe", "subscribePattern", "assign")

# Another name → what it is handed on as.
OTHER_NAMES = {
    "subscribe": "topics",
    "subscribePattern": "topicPattern",
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "startingTimestamp": "since",
    "endingTimestamp": "until",
}
OF_TIME = {"since", "until"}

# The beginning of a name that means something to Kafka only, in lower case → what to do instead.
INSTEAD = {
    "kafka.": "the option config names the file that says how to reach the database",
    "kafkaconsumer.": "leave it out: the option file says how the database is reached",
    "fetchoffset.": "leave it out: what has failed is repeated by Spark, as a task or a batch",
    "groupidprefix": "leave it out: the checkpoint keeps the place of a stream, and no group does",
    "startingoffsetsbytimestampstrategy": "leave it out: after the newest message is the end of"
    " the log",
    "maxrecordsperpartition": "use split_rows",
    "usedeprecatedoffsetfetching": "leave it out",
}


def translate(given: MutableMapping[str, str]) -> None:
    """Hand options on under our names; the names are in lower case. Raises BadOption."""
    for name, other in OTHER_NAMES.items():
        value = given.pop(name.lower(), None)
        if value is None:
            continue
        if other.lower() in given:
            raise BadOption(f"{name} and {other} say the same: give one of them")
        given[other.lower()] = _iso(value) if other in OF_TIME else value


def refuse(names: Iterable[str]) -> None:
    """Raise BadOption if one of these options is Kafka's own, and say what to do instead."""
    for name in sorted(names):
        for beginning, instead in INSTEAD.items():
            if name.startswith(beginning):
                raise BadOption(f"{name} is an option of Kafka's source: {instead}")


def _iso(text: str) -> str:
    """Return a time that is given in milliseconds since 1970 as an ISO time, others as they are."""
    if not text.isdecimal():
        return text
    try:
        return str(EPOCH + timedelta(milliseconds=int(text)))
    except OverflowError as error:
        raise BadOption(f"{text} is not a time in milliseconds since 1970") from error
