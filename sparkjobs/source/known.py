"""Makes a stream known to EMS: it writes into ``ems_reader`` what its checkpoint has.

Spark tells a source that is written in Python neither the name of the query nor its checkpoint. So
the source makes an id for a new checkpoint and puts it into the offsets, which Spark keeps there
and hands back: a restart goes on in the same rows, and two queries never share one. A query takes
its id from the end of a batch, which is in the checkpoint before the batch runs.

``latestOffset()`` is given what the checkpoint has: Spark calls it only when the batch before is
committed there, also when there is nothing new, and at the end of availableNow. It calls
``commit()`` with the same offsets, later or never. So rows may be behind, and are never ahead.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from sparkjobs.config import MYSQL, SQLITE
from sparkjobs.database import NOW, Connection, connected, execute, vendor_of
from sparkjobs.errors import NotRegistered
from sparkjobs.source.request import SourceRequest
from sparkjobs.source.splits import SourceLog
from sparkjobs.source.stream import EmsStreamReader, Offsets

# Where the offsets of a checkpoint have its id, beside those of the partitions by their ids.
ID = "reader"
ID_CHARACTERS = 12

# A stream that stands still is seen once in so many seconds; after an error it waits for longer.
SEEN_SECONDS = 10.0
AGAIN_SECONDS = 60.0

# The rate of a stream is computed over at least so many seconds.
RATE_SECONDS = 60

COLUMNS = ("checkpoint", "topic_id", "name", "protect", "positions", "total")
INSTANTS = ("first_seen_at", "seen_at", "before_at")

# It keeps a position of a minute ago or more. Before the other assignments: MySQL reads what
# earlier ones have set.
_IS_OLD = {
    MYSQL: f"TIMESTAMPDIFF(SECOND, `before_at`, `seen_at`) >= {RATE_SECONDS}",
    SQLITE: f"(JULIANDAY(`seen_at`) - JULIANDAY(`before_at`)) * 86400 >= {RATE_SECONDS}",
}
_NEW = {MYSQL: "VALUES(`{0}`)", SQLITE: "excluded.`{0}`"}
_ON_DUPLICATE = {
    MYSQL: "ON DUPLICATE KEY UPDATE",
    SQLITE: "ON CONFLICT (`topic_id`, `checkpoint`) DO UPDATE SET",
}


class KnownReader(EmsStreamReader):
    """A stream whose offsets have the id of its checkpoint."""

    def __init__(self, request: SourceRequest, schema: StructType) -> None:
        super().__init__(request, schema)
        self.new = uuid4().hex[:ID_CHARACTERS]  # of a checkpoint that has none yet
        self.found: Mapping[str, SourceLog] = {}
        self.noted = False  # it was tried to note where the checkpoint is
        self.written: tuple[str, dict[int, Offsets]] | None = None
        self.due = 0.0  # when to write again what has not changed
        self.told = False

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as below
        return {**super().initialOffset(), ID: self.new}  # type: ignore[dict-item]

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        id_, places = parted(start)
        end = super().latestOffset(places, limit)
        # A new id is not in the checkpoint before the first batch is planned.
        if id_ and (self.noted or id_ != self.new):
            self._note(id_, places)
        return {**end, ID: id_ or self.new}  # type: ignore[dict-item]

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        (_, first), (id_, last) = parted(start), parted(end)
        if id_ and not self.noted:
            self._logs()
            self._note(id_, first)
        return super().partitions(first, last)

    def _logs(self) -> dict[str, SourceLog]:
        found = super()._logs()
        self.found = found
        return found

    def _note(self, id_: str, places: Offsets) -> None:
        """Write where the checkpoint is; an error ends the query only if it protects."""
        self.noted = True
        by_topic: dict[int, Offsets] = {}
        for partition, log in self.found.items():
            # A topic that was added since is there from now on, though nothing of it was read.
            of_topic = by_topic.setdefault(log.topic_id, {})
            if partition in places:
                of_topic[partition] = places[partition]
        now = time.monotonic()
        if not by_topic or (self.written == (id_, by_topic) and now < self.due):
            return
        if self.told and now < self.due:
            return
        try:
            with connected(self.config) as connection:
                write(connection, self.request, id_, by_topic)
        except Exception as error:
            if self.request.protect:
                text = f"ems_reader: {error}; protect=true needs INSERT and UPDATE on this table"
                raise NotRegistered(text) from error
            if not self.told:
                print(f"ems: EMS does not know this stream: {error}", file=sys.stderr, flush=True)
            self.told, self.due = True, now + AGAIN_SECONDS
        else:
            self.told, self.written, self.due = False, (id_, by_topic), now + SEEN_SECONDS


def parted(offsets: Mapping[str, Any]) -> tuple[str, Offsets]:
    """Return the id of the checkpoint, or an empty text, and the offsets of the partitions."""
    places = {name: offset for name, offset in offsets.items() if name != ID}
    return str(offsets.get(ID, "")), places


def write(
    connection: Connection, request: SourceRequest, id_: str, by_topic: Mapping[int, Offsets]
) -> None:
    """Write the rows of a checkpoint, one for each topic, by one statement."""
    vendor = vendor_of(connection)
    names = ", ".join(f"`{name}`" for name in (*COLUMNS, "before_total", *INSTANTS))
    row = ", ".join(["%s"] * (len(COLUMNS) + 1) + [NOW[vendor]] * len(INSTANTS))
    changes = [
        f"`before_total` = CASE WHEN {_IS_OLD[vendor]} THEN `ems_reader`.`total`"
        " ELSE `ems_reader`.`before_total` END",
        f"`before_at` = CASE WHEN {_IS_OLD[vendor]} THEN `ems_reader`.`seen_at`"
        " ELSE `ems_reader`.`before_at` END",
        *(
            f"`{name}` = {_NEW[vendor].format(name)}"
            for name in ("name", "protect", "positions", "total", "seen_at")
        ),
    ]
    values: list[Any] = []
    for topic, places in by_topic.items():
        total = sum(places.values())
        values += [id_, topic, request.reader, request.protect, json.dumps(places), total, total]
    execute(
        connection,
        f"INSERT INTO `ems_reader` ({names}) VALUES "  # noqa: S608 - our names
        + ", ".join([f"({row})"] * len(by_topic))
        + f" {_ON_DUPLICATE[vendor]} {', '.join(changes)}",
        values,
    )
