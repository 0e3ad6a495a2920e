"""Write the log of the topics that are set to be archived to the lake: Parquet by day and topic.

Without options the job writes what is there and ends; with --every it goes on, a batch every so
many seconds. It may be killed at any instant and run again: each message is in the lake once.
"""

from __future__ import annotations

import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sparkjobs.config import Config
from sparkjobs.database import connected, fetch
from sparkjobs.databases import each
from sparkjobs.errors import BadOption
from sparkjobs.lake.batch import write
from sparkjobs.lake.compaction import compact, due, sweep
from sparkjobs.lake.manifest import root
from sparkjobs.lock import alone
from sparkjobs.rollup.windows import Say
from sparkjobs.session import session
from sparkjobs.source.schemas import MESSAGES

# The most messages of a batch: what a process that is killed has to write again.
BATCH_MESSAGES = 200_000
# A pattern of no topic's name.
NOTHING = "(?!)"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--every", type=int, help="go on: a batch every so many seconds")


def run_all(configs: Sequence[Config], options: Namespace) -> int:
    """Write the logs of these databases; with --every, one after the other, again and again."""
    if options.every is not None and options.every < 1:
        raise BadOption("--every must be at least 1 second")
    if options.every is None or len(configs) == 1:
        return each("lake", configs, lambda config: run(config, options.every))
    # A query that goes on would end with its database, and stay ended when that comes back.
    while True:
        began = time.monotonic()
        each("lake", configs, run)
        time.sleep(max(0.0, options.every - (time.monotonic() - began)))


def run(config: Config, every: int | None = None) -> int:
    """Write what is there, or go on, a batch ``every`` so many seconds."""
    root(config)  # before Spark starts
    name = f"lake-{config.namespace}" if config.namespace else "lake"
    with alone(config, name):
        start(session("lake"), config, print, every).awaitTermination()
    return 0


def start(
    spark: SparkSession, config: Config, say: Say, every: int | None = None
) -> StreamingQuery:
    """Start the query; ``say`` is called with lines that tell what was written.

    Its checkpoint is beside the files. Without it, the log is read from its beginning once more,
    and nothing is written twice: the positions are in the database.
    """

    def each(frame: DataFrame, batch: int) -> None:
        written = write(frame, config)
        if written.files:
            say(f"lake: {written.messages:,} messages in {len(written.files):,} files")
        for topic, day in _due(config):
            fewer = compact(frame.sparkSession, config, topic, day)
            say(f"lake: {topic} {day} has {fewer:,} files fewer")
        if deleted := sweep(frame.sparkSession, config):
            say(f"lake: {deleted:,} old files deleted")

    messages = (
        spark.readStream.format("ems")
        .schema(MESSAGES)
        # A message of such a topic is purged only when it is archived.
        .options(config=config.path, maxMessagesPerTrigger=BATCH_MESSAGES, purged="skip")
        .option("reader", "lake")
        .option("topicPattern", "|".join(map(re.escape, _topics(config))) or NOTHING)
        .load()
    )
    # A kill while Spark writes the first plan leaves a part of a file, and Spark refuses to begin
    # beside it. No other query can have this checkpoint, against which that is meant.
    spark.conf.set("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    query = messages.writeStream.queryName("lake").foreachBatch(each)
    query = query.option("checkpointLocation", f"{root(config)}/_checkpoint")
    trigger = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    return query.trigger(**trigger).start()


def _topics(config: Config) -> list[str]:
    """Return the topics that are set to be archived."""
    with connected(config) as connection:
        rows = fetch(connection, "SELECT `name` FROM `ems_topic` t WHERE `archive` = %s", [True])
    return [name for (name,) in rows]


def _due(config: Config) -> list[tuple[str, date]]:
    with connected(config) as connection:
        return due(connection, config)
