"""Reads the messages that the roll-ups of a run need, each of them once.

The traffic, the latencies and the hot keys are counted from about the same messages. So what one
of them has read is kept in Spark for the next one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from sparkjobs.config import EVERY, Config
from sparkjobs.rollup.figures import MESSAGES_OF_KEYS, MESSAGES_OF_LATENCY, MESSAGES_OF_TRAFFIC
from sparkjobs.rollup.offsets import Span, left
from sparkjobs.source import here
from sparkjobs.source.request import SKIP
from sparkjobs.source.schemas import MESSAGES, only

# What any of the roll-ups asks for.
COLUMNS = tuple(dict.fromkeys(MESSAGES_OF_TRAFFIC + MESSAGES_OF_LATENCY + MESSAGES_OF_KEYS))
# The most messages that are kept for later: about a hundred bytes each, on disk if need be.
KEPT = 2_000_000

# Partition → rising spans of offsets.
Spans = Mapping[int, Sequence[Span]]


@dataclass(frozen=True, eq=False)
class Part:
    """What was read at once."""

    spans: Spans
    frame: DataFrame

    @property
    def messages(self) -> int:
        return _count(self.spans)

    def has_of(self, asked: Spans) -> bool:
        return any(
            first < end_asked and first_asked < end
            for id_, spans in self.spans.items()
            for first, end in spans
            for first_asked, end_asked in asked.get(id_, ())
        )


class Messages:
    """The messages of spans of offsets; with ``keeps``, each is read once until forget()."""

    def __init__(self, spark: SparkSession, config: Config, *, keeps: bool = False) -> None:
        self._spark = spark
        self._config = config
        self._keeps = keeps
        self._parts: list[Part] = []

    def exactly(self, asked: Spans, columns: Sequence[str], purged: str) -> DataFrame:
        """Read these messages, whatever was kept; with ``purged`` = fail a purge is an error."""
        if not self._keeps:
            return self._read(asked, columns, purged)
        for part in [part for part in self._parts if part.has_of(asked)]:
            self._drop(part)
        return self._part(asked, columns, purged).frame.select(*columns)

    def covering(self, asked: Spans, columns: Sequence[str], *, is_last: bool = False) -> DataFrame:
        """Return these messages, at least one, each once; and perhaps others read with them.

        ``is_last``: no other reader follows in this run, so that what is read now is not kept.
        """
        if not self._keeps:
            return self._read(asked, columns, SKIP)
        parts = [part for part in self._parts if part.has_of(asked)]
        taken = [part.spans for part in parts]
        rest = {
            id_: found
            for id_, spans in asked.items()
            if (found := left(spans, [span for of in taken for span in of.get(id_, ())]))
        }
        if rest or not parts:
            keeps = not is_last
            parts.append(self._part(rest, columns, SKIP, needed=parts, keeps=keeps))
        whole = parts[0].frame.select(*columns)
        for part in parts[1:]:
            whole = whole.unionByName(part.frame.select(*columns))
        few = len(parts) > 1 and sum(part.messages for part in parts) <= here.FEW
        return whole.coalesce(1) if few else whole

    def forget(self) -> None:
        """Free the memory; what is asked for later is read again."""
        parts, self._parts = self._parts, []
        for part in parts:
            part.frame.unpersist()

    def _part(
        self,
        asked: Spans,
        columns: Sequence[str],
        purged: str,
        *,
        needed: Sequence[Part] = (),
        keeps: bool = True,
    ) -> Part:
        """Read with all columns and keep it; free what is too much, the oldest first.

        More than KEPT is not kept, nor without ``keeps``: such a part passes through Spark.
        """
        if not keeps or _count(asked) > KEPT:
            return Part(asked, self._read(asked, columns, purged))
        frame = self._read(asked, COLUMNS, purged)
        part = Part(asked, frame if _count(asked) <= here.FEW else frame.persist())
        for oldest in [old for old in self._parts if old not in needed]:
            if part.messages + sum(old.messages for old in self._parts) <= KEPT:
                break
            self._drop(oldest)
        self._parts.append(part)
        return part

    def _drop(self, part: Part) -> None:
        part.frame.unpersist()
        self._parts = [other for other in self._parts if other is not part]

    def _read(self, asked: Spans, columns: Sequence[str], purged: str) -> DataFrame:
        # All spans in one read: to plan another one costs more than to read most of them. What was
        # lost from the log is left out: reconcile reports it.
        options = {
            "config": self._config.path,
            "namespace": EVERY,
            "purged": purged,
            "holes": "skip",
            "bounds": json.dumps(asked),
        }
        return here.load(self._spark, only(MESSAGES, *columns), options, _count(asked))


def _count(spans: Spans) -> int:
    return sum(end - first for of in spans.values() for first, end in of)
