"""Reads the source in this process, task by task, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sparkjobs.config import Config
from sparkjobs.database import connected, stream
from sparkjobs.source import reading
from sparkjobs.source.request import SourceRequest
from sparkjobs.source.schemas import only
from sparkjobs.source.splits import Range, Split, ranges
from sparkjobs.source.tasks import tasks
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Partition


def sent(topic: str = "orders", messages: int = 10, **named: Any) -> Partition:
    send_many([Outgoing(topic, {"n": n}, **named) for n in range(messages)])
    sequence("default")
    return Partition.objects.get(topic__name=topic)


class Reading:
    """Plans and reads with these options."""

    def __init__(self, config: Config, *columns: str, **options: object) -> None:
        given = {name: str(value) for name, value in options.items()}
        self.request = SourceRequest.of({"config": config.path, **given})
        self.columns = only(self.request.source.schema, *columns) if columns else None
        self.config = config

    @property
    def schema(self) -> Any:
        return self.columns or self.request.schema

    def plan(self) -> list[Split]:
        with connected(self.config) as connection:
            wanted = ranges(connection, self.request)
            return tasks(connection, self.request, self.schema, wanted)

    def task(self, split: Split) -> list[dict[str, Any]]:
        found = reading.batches(self.config, self.request, self.schema, split)
        return [row for batch in found for row in batch.to_pylist()]

    def rows(self) -> list[dict[str, Any]]:
        return [row for split in self.plan() for row in self.task(split)]

    def offsets(self) -> list[int]:
        return sorted(row["offset"] for row in self.rows())


def part(partition: Partition, first: int, end: int) -> Split:
    return Split((Range(first, end, partition.pk, partition.topic.name, partition.number),))


class Sent:
    """Notes by which index the tasks read, how many rows the server sends, and the statements."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = {"PRIMARY": 0, "log": 0}
        self.statements = {"PRIMARY": 0, "log": 0}
        self.asked: list[tuple[str, Sequence[Any]]] = []

        def noted(connection: Any, statement: str, values: Sequence[Any]) -> Any:
            by_ids = "(PRIMARY)" in statement or "NOT INDEXED" in statement
            index = "PRIMARY" if by_ids else "log"
            self.statements[index] += 1
            self.asked.append((statement, values))
            for chunk in stream(connection, statement, values):
                self.rows[index] += len(chunk)
                yield chunk

        patch.setattr(reading, "stream", noted)
        patch.setattr(reading, "address", lambda config: None)  # ConnectorX has its own test
