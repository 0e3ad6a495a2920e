"""Reads and checks the options of the source "ems"."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from pyspark.sql.types import StructType

from sparkjobs.config import VARIABLE, Config
from sparkjobs.errors import BadOption
from sparkjobs.source import kafka
from sparkjobs.source.schemas import BODY, BODY_ERROR, VALUE, only
from sparkjobs.source.selection import Selection
from sparkjobs.source.tables import SourceTable, table
from streams.rules.names import MAX_NAME

FAIL, SKIP = "fail", "skip"
# The modes of Spark's own sources that are about a body which cannot be read.
FAILFAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"

# Rows of one task: enough to be worth its start, few enough to give all tasks the same work.
SPLIT_ROWS = 50_000


@dataclass(frozen=True)
class SourceRequest:
    """The options, read and checked; docs/guides/spark.md documents each."""

    config: str = ""
    table: str = "messages"
    topic: str | None = None
    bounds: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    start: int | None = None
    end: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    purged: str = FAIL
    holes: str = FAIL
    mode: str = FAILFAST
    split_rows: int = SPLIT_ROWS
    namespace: str | None = None
    selection: Selection = field(default_factory=Selection)
    columns: tuple[str, ...] = ()
    connections: int | None = None
    reader: str = ""
    protect: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceRequest:
        """Return the request of these options; raises BadOption."""
        # Spark may give the names in lower case.
        given = {name.lower(): value for name, value in options.items()}
        given.pop("path", None)  # load() of Spark sets it
        if "mode" in given:
            given["mode"] = given["mode"].upper()  # Spark takes its modes in any case
        selection = Selection.of(given)
        unknown = set(given) - {f.name for f in fields(cls)} | ({"selection"} & set(given))
        if unknown:
            kafka.refuse(unknown)
            raise BadOption(f"unknown options: {', '.join(sorted(unknown))}")
        request = cls(
            config=given.get("config") or os.environ.get(VARIABLE, ""),
            table=given.get("table", "messages"),
            topic=given.get("topic"),
            bounds=_bounds(given.get("bounds")),
            start=_number(given, "start"),
            end=_number(given, "end"),
            since=_instant(given, "since"),
            until=_instant(given, "until"),
            purged=_choice(given, "purged", FAIL, SKIP),
            holes=_choice(given, "holes", FAIL, SKIP),
            mode=_choice(given, "mode", FAILFAST, PERMISSIVE),
            split_rows=_number(given, "split_rows") or SPLIT_ROWS,
            namespace=given.get("namespace"),
            selection=selection,
            columns=tuple(map(str.strip, filter(None, given.get("columns", "").split(",")))),
            connections=_number(given, "connections"),
            reader=given.get("reader", ""),
            protect=_choice(given, "protect", "false", "true") == "true",
        )
        if len(request.reader) > MAX_NAME:
            raise BadOption(f"reader has at most {MAX_NAME} characters")
        known = request.source.schema.names
        for name in request.columns:
            if name not in known:
                raise BadOption(f"no column {name!r}: there are {', '.join(known)}")
        if request.bounds and not request.is_log:
            raise BadOption("bounds are of messages; of other tables give start and end, by id")
        if selection != Selection() and not request.is_log:
            raise BadOption("other tables than messages take topic, start, end, since and until")
        if selection.is_given and (request.bounds or request.start or request.end):
            raise BadOption("give startingOffsets and endingOffsets, or bounds, or start and end")
        return request

    def configuration(self) -> Config:
        """Return the configuration, with the namespace that the options name; raises BadConfig."""
        config = Config.load(self.config)
        return config if self.namespace is None else replace(config, namespace=self.namespace)

    def rows_of_a_task(self, rows: int) -> int:
        """Return how many of ``rows`` rows a task reads at most."""
        return max(1, min(self.split_rows, rows // self.selection.min_partitions))

    @property
    def source(self) -> SourceTable:
        return table(self.table)

    @property
    def schema(self) -> StructType:
        """Return the columns that are asked for, in the order of the table."""
        names = self.source.schema.names
        # A body that nobody asks for by both of its names is not given twice.
        left_out = {BODY if self.selection.by_kafka else VALUE}
        if self.mode == FAILFAST:
            left_out.add(BODY_ERROR)  # it would always be null
        wanted = self.columns or [name for name in names if name not in left_out]
        return only(self.source.schema, *(name for name in names if name in wanted))

    def since_of(self, topic: str, number: int) -> datetime | None:
        """Return the time at which this partition begins."""
        return self.selection.starting_times.get(topic, {}).get(number, self.since)

    @property
    def newest_since(self) -> datetime | None:
        """Return the latest time at which any partition begins."""
        of_partitions = (at for of in self.selection.starting_times.values() for at in of.values())
        return max(filter(None, (self.since, *of_partitions)), default=None)

    def until_of(self, topic: str, number: int) -> datetime | None:
        """Return the time at which it ends; what is sequenced then is not read."""
        return self.selection.ending_times.get(topic, {}).get(number, self.until)

    @property
    def is_log(self) -> bool:
        """Tell whether it is about messages, which are split by their dense offsets."""
        return self.table == "messages"


def _bounds(text: str | None) -> dict[int, tuple[tuple[int, int], ...]]:
    if not text:
        return {}
    try:
        return {int(id_): _pairs(given) for id_, given in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        shown = '{"1": [0, 100], "2": [[0, 10], [90, 100]]}'
        raise BadOption(f"bounds must be like {shown}, not {text}") from error


def _pairs(given: list[Any]) -> tuple[tuple[int, int], ...]:
    """Return one pair, or several that rise and do not overlap."""
    pairs = given if isinstance(given[0], list) else [given]
    found = tuple((int(first), int(end)) for first, end in pairs)
    if any(end > first for (_, end), (first, _) in pairwise(found)):
        raise ValueError("they overlap")
    return found


def _number(given: Mapping[str, str], name: str) -> int | None:
    try:
        number = int(given[name]) if name in given else None
    except ValueError as error:
        raise BadOption(f"{name} must be a number, not {given[name]!r}") from error
    if number is not None and number < 0:
        raise BadOption(f"{name} must not be negative")
    return number


def _instant(given: Mapping[str, str], name: str) -> datetime | None:
    """Return the time of an option; one without a time zone is in UTC. Raises BadOption."""
    try:
        instant = datetime.fromisoformat(given[name]) if name in given else None
    except ValueError as error:
        raise BadOption(f"{name} must be an ISO time, not {given[name]!r}") from error
    if instant is None or instant.tzinfo:
        return instant
    return instant.replace(tzinfo=UTC)


def _choice(given: Mapping[str, str], name: str, *choices: str) -> str:
    value = given.get(name, choices[0])
    if value not in choices:
        raise BadOption(f"{name} must be {' or '.join(choices)}, not {value!r}")
    return value
