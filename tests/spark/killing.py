"""A sink "ems" whose driver is killed beside a commit, for tests/spark/test_sink_killed.py.

EMS_TEST_KILL names the group of processes, the batch, and whether it dies before or after it.
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


class KillingSource(EmsSource):
    @classmethod
    def name(cls) -> str:
        return "ems_killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return KillingWriter(SinkOptions.of(self.options), schema, overwrite)


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
