"""A source and sink "ems" whose driver is killed beside a commit.

EMS_TEST_KILL names the group of processes, the batch, and whether it dies before or after it.
EMS_TEST_KILL_AT names the group, and a position that a stream shall not come to write.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import StructType

from sparkjobs.sink.options import SinkOptions
from sparkjobs.sink.writer import EmsStreamWriter
from sparkjobs.source.datasource import EmsSource
from sparkjobs.source.known import KnownReader
from sparkjobs.source.request import SourceRequest
from sparkjobs.source.stream import Offsets


class KillingSource(EmsSource):
    @classmethod
    def name(cls) -> str:
        return "ems_killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return KillingWriter(SinkOptions.of(self.options), schema, overwrite)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        return KillingReader(SourceRequest.of(self.options), schema)


class KillingReader(KnownReader):
    def _note(self, id_: str, places: Offsets) -> None:
        group, at = os.environ["EMS_TEST_KILL_AT"].split()
        if sum(places.values()) >= int(at):
            die(int(group))
        super()._note(id_, places)


class KillingWriter(EmsStreamWriter):
    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        group, batch, when = os.environ["EMS_TEST_KILL"].split()
        if when == "before" and batchId == int(batch):
            die(int(group))
        super().commit(messages, batchId)
        if when == "after" and batchId == int(batch):
            die(int(group))


def die(group: int) -> None:
    """Kill the driver with Java; Python of Spark may be in a group of its own."""
    os.killpg(group, signal.SIGKILL)
    time.sleep(60)
