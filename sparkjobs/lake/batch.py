"""Writes a batch of the stream into the lake exactly once.

Files are written first, then one transaction makes them a part of the lake and moves the positions
of their partitions. A batch that comes again finds its offsets below the positions, and writes
nothing, also after a new checkpoint. Files of a process that was killed before its transaction are
in no manifest: nobody reads them, and a compaction deletes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from uuid import uuid4

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs import storage
from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import ArchiveDiffers, Busy
from sparkjobs.lake.manifest import LakeProgress, ManifestFile, add, positions, root

# How often a batch is written if the archive takes over one of its partitions meanwhile.
ATTEMPTS = 3


@dataclass(frozen=True)
class Written:
    """The files of a batch, and of each partition the first offset in them and the end."""

    files: list[ManifestFile]
    ranges: dict[int, tuple[int, int]]

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)


def write(frame: DataFrame, config: Config) -> Written:
    """Write what is not in the lake yet, of topics that are set to be archived.

    Raises Busy if others move the positions all the time, ArchiveDiffers if a file lacks messages.
    """
    for _attempt in range(ATTEMPTS):
        with connected(config) as connection:
            known = positions(connection)
        written = stage(fresh(frame, known), config)
        if not written.files:
            return written
        with connected(config) as connection:
            if add(connection, config, known, written.ranges, written.files):
                return written
        discard(frame, config, written)
    raise Busy("another process writes to the lake, too")


def fresh(frame: DataFrame, known: Mapping[int, LakeProgress]) -> DataFrame:
    """Return the messages of these partitions from their positions on."""
    if not known:
        return frame.where(F.lit(False))
    pairs = [F.lit(n) for id_, at in known.items() for n in (id_, at.next)]
    next_offset = F.try_element_at(F.create_map(*pairs), F.col("partition_id"))
    return frame.where(F.col("offset") >= next_offset)


def stage(messages: DataFrame, config: Config) -> Written:
    """Write files that nobody reads yet; return what they hold."""
    prefix = f"lake-{uuid4().hex}"
    observation = Observation()
    dated = messages.withColumn("date", F.date_format("sequenced_at", "yyyy-MM-dd"))
    folders = F.collect_set(F.struct("date", "topic")).alias("folders")
    counted = dated.observe(observation, F.count(F.lit(1)).alias("messages"), folders)
    storage.write(counted, root(config), prefix=prefix)
    seen = observation.get
    found = _look(messages, config, prefix, {(row[0], row[1]) for row in seen["folders"]})
    if found.messages != seen["messages"]:
        raise ArchiveDiffers(
            f"{seen['messages']:,} messages were written to the lake, {found.messages:,} are there"
        )
    return found


def _look(frame: DataFrame, config: Config, prefix: str, folders: set[tuple[str, str]]) -> Written:
    """Return what is in the files with this prefix; only these folders are listed."""
    spark, top = frame.sparkSession, root(config)
    sizes = {
        f"{place}/{file.name}": file.size
        for place in sorted(storage.place(*folder) for folder in folders)
        for file in storage.files(spark, f"{top}/{place}")
        if file.name.startswith(prefix)
    }
    rows = (
        storage.read(spark, top, sorted(sizes))
        .groupBy(F.col("_metadata.file_name").alias("name"), "topic", "date", "partition_id")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("offset").alias("first"),
            (F.max("offset") + 1).alias("end"),
        )
        .collect()
        if sizes
        else []
    )
    files: dict[tuple[str, str, str], tuple[int, int]] = {}
    ranges: dict[int, tuple[int, int]] = {}
    for row in rows:
        # A task that writes to several folders gives its files there the same name.
        key = (row["name"], row["topic"], row["date"])
        messages, size = files.get(key, (0, 0))
        files[key] = messages + row["messages"], size + row["bytes"]
        first, end = ranges.get(row["partition_id"], (row["first"], row["end"]))
        ranges[row["partition_id"]] = min(first, row["first"]), max(end, row["end"])
    return Written(
        [
            ManifestFile(
                topic,
                date.fromisoformat(day),
                path := f"{storage.place(day, topic)}/{name}",
                *counted,
                sizes[path],
                storage.SCHEMA_VERSION,
            )
            for (name, topic, day), counted in sorted(files.items())
        ],
        ranges,
    )


def discard(frame: DataFrame, config: Config, written: Written) -> None:
    """Delete files that did not become a part of the lake."""
    for file in written.files:
        storage.delete(frame.sparkSession, f"{root(config)}/{file.path}")
