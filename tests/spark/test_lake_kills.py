"""The lake job, killed with -9 wherever it is, leaves each message in the lake once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.models import LakeFile
from sparkjobs.config import Config
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from tests.processes import wait_for
from tests.spark.test_archive import history
from tests.spark.test_lake import ordered, parquet
from tests.spark.test_process import Start, kill, start

__all__ = ["start"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.one_server,
    pytest.mark.exhaustive,
    pytest.mark.timeout(1800),
]
START_SECONDS = 300


class Reaching:
    """Runs the job until it has come to a moment; on a busy machine it may have to begin again."""

    def __init__(self, start: Start, moment: Callable[[], bool]) -> None:
        self.process = start("lake", "--every", "1")

        def reached() -> bool:
            if self.process.poll() is not None:
                self.process = start("lake", "--every", "1")
            return moment()

        wait_for(reached, timeout=START_SECONDS)


def test_a_lake_that_is_killed_again_and_again_equals_the_log(
    spark: Any, config: Config, read: Any, start: Start
) -> None:
    from sparkjobs.lake.reading import lake

    history()
    checkpoint = Path(config.archive) / "_lake" / "_checkpoint"

    def has_planned() -> bool:
        return len(list(checkpoint.glob("offsets/*"))) > planned

    def has_written() -> bool:
        return len(parquet(config)) > files

    def has_committed() -> bool:
        return LakeFile.objects.count() > rows

    for moment in (has_planned, has_written, has_committed):
        planned, files = len(list(checkpoint.glob("offsets/*"))), len(parquet(config))
        rows = LakeFile.objects.count()
        kill(Reaching(start, moment).process)
        send_many([Outgoing("flights", body) for body in (b"\x00\xff", "é", {"n": 1}) * 50])
        sequence("default")
    last = start("lake")
    said, _ = last.communicate(timeout=START_SECONDS)
    assert last.returncode == 0, said
    assert ordered(lake(spark, config)) == ordered(read())
    assert len(ordered(lake(spark, config))) == 15 + 3 * 150
