"""Measures the archive and the lake beside the ways that cost more."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from tests.lab.benchmarks.figures import Options, Row, interleaved
from tests.lab.benchmarks.server import connect, execute
from tests.lab.benchmarks.spark import archived, fill, option_file, session

DAYS, TOPICS = 365, 20


def figures(options: Options) -> Iterator[Row]:
    rows, rounds = (20_000, 1) if options.quick else (500_000, 3)
    with tempfile.TemporaryDirectory(prefix="ems-lake-") as folder, session() as spark:
        from sparkjobs.config import Config

        config = Config.load(str(option_file(Path(folder))))
        fill(rows)

        def once() -> float:
            return archived(spark, config, rows)

        def twice() -> float:
            # As before: whatever the write has counted, the database is read once more.
            job: Any = import_module("sparkjobs.jobs.archive")
            with mock.patch.object(job, "total", return_value=None):
                return archived(spark, config, rows)

        name = "archive of 1 KB messages/s, beside a second read of the database"
        yield interleaved(name, once, twice, rounds=rounds, target=1.1)
        name = f"a topic and day of an archive of {DAYS} days, {TOPICS} topics, a second"
        yield interleaved(name, *listings(spark, config), rounds=rounds, target=5)
        name = "lake of 1 KB messages/s, beside the archive"
        yield interleaved(name, lambda: filled(spark, config, rows), once, rounds=1, target=0.5)


def listings(spark: Any, config: Any) -> tuple[Callable[[], float], Callable[[], float]]:
    """Read one topic and day of a large archive, by its folder, and by a listing of all."""
    from sparkjobs import storage
    from sparkjobs.archive.manifest import fingerprints, in_archive

    root = Path(config.archive)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    # A large day is written in several files.
    whole = min((root / f"date={yesterday}").glob("topic=*/*.parquet"))
    frame = spark.read.parquet(str(whole)).limit(10)
    frame.write.parquet(str(root / "_one"))
    (small,) = (root / "_one").glob("*.parquet")
    for number in range(DAYS):
        for topic in range(TOPICS):
            folder = root / f"date={date(2020, 1, 1) + timedelta(days=number)}/topic=t{topic}"
            folder.mkdir(parents=True)
            shutil.copy(small, folder)
    day = date(2020, 7, 1)

    def named() -> float:
        started = time.monotonic()
        fingerprints(in_archive(spark, config, ["t1"], [day]))
        return 1 / (time.monotonic() - started)

    def listed() -> float:
        started = time.monotonic()
        of_day = f"date = '{day}' AND topic = 't1'"
        fingerprints(spark.read.schema(storage.STORED).parquet(str(root)).where(of_day))
        return 1 / (time.monotonic() - started)

    return named, listed


def filled(spark: Any, config: Any, rows: int) -> float:
    """Write the whole log into an empty lake."""
    from sparkjobs.jobs.lake import start
    from sparkjobs.lake.manifest import root

    shutil.rmtree(root(config), ignore_errors=True)
    plain = connect()
    execute(plain, "UPDATE ems_partition SET archived_offset = 0")
    for table in ("archive", "lake", "lake_position"):
        execute(plain, f"DELETE FROM ems_monitoring_{table}")
    plain.close()
    said: list[str] = []
    started = time.monotonic()
    start(spark, config, said.append).awaitTermination()
    assert said
    return rows / (time.monotonic() - started)
