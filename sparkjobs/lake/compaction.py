"""Makes few large files of many small ones, and deletes files that left the lake.

New files take the place of old ones in one transaction, so a reader sees either. Old files stay for
a day, since queries that began before may still read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from uuid import uuid4

from pyspark.sql import SparkSession

from sparkjobs import storage
from sparkjobs.archive.manifest import (
    Fingerprint,
    fingerprints,
    is_own,
    observed,
    total,
)
from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, fetch
from sparkjobs.errors import ArchiveDiffers
from sparkjobs.instants import now
from sparkjobs.lake.manifest import (
    ManifestFile,
    as_day,
    forget,
    has_files,
    of_day,
    replace,
    retired_before,
    root,
)

# A day of a topic with this many small files is compacted.
FILES = 16
SMALL_BYTES = 64 * 1024 * 1024
FILE_BYTES = 128 * 1024 * 1024
# How long files are kept that have left the lake.
KEPT = timedelta(days=1)


def due(connection: Connection, config: Config) -> list[tuple[str, date]]:
    """Return the topics and days that have many small files."""
    rows = fetch(
        connection,
        "SELECT `topic`, `day` FROM `ems_monitoring_lake`"
        " WHERE `retired_at` IS NULL AND `size` < %s GROUP BY `topic`, `day`"
        " HAVING COUNT(*) >= %s ORDER BY `day`, `topic`",
        [SMALL_BYTES, FILES],
    )
    return [
        (topic.removeprefix(config.prefix), as_day(day))
        for topic, day in rows
        if is_own(config, topic)
    ]


def compact(spark: SparkSession, config: Config, topic: str, day: date) -> int:
    """Compact the small files of a day; return how many files there are fewer.

    It does nothing if the archive has taken the day meanwhile. Raises ArchiveDiffers.
    """
    with connected(config) as connection:
        old = [file for file in of_day(connection, config, topic, day) if file.size < SMALL_BYTES]
    if len(old) < 2:
        return 0
    top, place, prefix = root(config), storage.place(day, topic), f"compact-{uuid4().hex}"
    count = -(-sum(file.size for file in old) // FILE_BYTES)
    whole, seen = observed(storage.read(spark, top, [file.path for file in old]).coalesce(count))
    storage.write(whole.sortWithinPartitions("partition_id", "offset"), top, prefix=prefix)
    written = [
        _described(spark, config, topic, day, file)
        for file in storage.files(spark, f"{top}/{place}")
        if file.name.startswith(prefix)
    ]
    new = [file for file, _mark in written]
    if total([mark for _file, mark in written]) != seen():
        _delete(spark, config, new)
        raise ArchiveDiffers(f"{topic} {day}: the compacted files are not what was read")
    with connected(config) as connection:
        replaced = replace(connection, config, old, new)
        kept = {file.path for file in of_day(connection, config, topic, day)}
        kept |= {file.path for file in retired_before(connection, now(connection) + KEPT)}
    if not replaced:
        _delete(spark, config, new)
        return 0
    # Nobody else writes here: what is in no manifest, a killed process has left.
    for file in storage.files(spark, f"{top}/{place}"):
        if f"{place}/{file.name}" not in kept:
            storage.delete(spark, f"{top}/{place}/{file.name}")
    return len(old) - len(new)


def sweep(spark: SparkSession, config: Config) -> int:
    """Delete files that left the lake a day ago; return how many."""
    with connected(config) as connection:
        retired = [
            file
            for file in retired_before(connection, now(connection) - KEPT)
            if is_own(config, file.topic)
        ]
        _delete(spark, config, retired)
        forget(connection, retired)
        for stored, day in sorted({(file.topic, file.day) for file in retired}):
            if not has_files(connection, stored, day):
                # The archive has the whole day: what is left is of killed processes.
                topic = stored.removeprefix(config.prefix)
                storage.delete(spark, f"{root(config)}/{storage.place(day, topic)}")
    return len(retired)


def _described(
    spark: SparkSession, config: Config, topic: str, day: date, file: storage.File
) -> tuple[ManifestFile, Fingerprint]:
    """Return a file as the manifest has it, with the fingerprint of what it holds."""
    path = f"{storage.place(day, topic)}/{file.name}"
    mark = total(fingerprints(storage.read(spark, root(config), [path])).values())
    version = storage.SCHEMA_VERSION
    return ManifestFile(topic, day, path, mark.messages, mark.bytes, file.size, version), mark


def _delete(spark: SparkSession, config: Config, files: Iterable[ManifestFile]) -> None:
    for file in files:
        storage.delete(spark, f"{root(config)}/{file.path}")
