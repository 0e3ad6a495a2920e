"""Makes the Spark session of a job, and is the only module that does.

A session must never cross a fork: jobs run in processes of their own.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparkjobs.errors import BadConfig
from sparkjobs.jvm import LOG4J, adjust_submitted, quiet_start, was_submitted
from sparkjobs.package import packed
from sparkjobs.source.datasource import EmsSource

MASTER, REMOTE = "EMS_SPARK_MASTER", "SPARK_REMOTE"

# The JVM inherits the time zone of Django's process, so every part that reads clocks is set to UTC.
UTC = "-Duser.timezone=UTC"
LOGGING = f"-Dlog4j2.configurationFile={LOG4J}"
# The quick compiler only. With one tier Java reserves 48 MB for compiled code instead of 240, and a
# session that fills them fails.
ONE_TIER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# Of a JVM that ends soon: also a collector without threads of its own.
BRIEF = f"{ONE_TIER} -XX:+UseSerialGC"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": f"{UTC} {LOGGING}",
    "spark.executor.extraJavaOptions": UTC,
    "spark.ui.showConsoleProgress": "false",
    # Else each call that makes a column looks for the line that has called it, for errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Only the days and topics that are written are replaced.
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # The name of a topic may be 007, which must stay a text.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Percentiles are counted in memory for so many minutes of groups; by default all is sorted from
    # 128 on, and a day of two groups has 2,880.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
}

# For one process on one machine: no web page, no port that others reach, and few tasks.
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    # Nobody looks at what has run; by default a thousand queries with their plans are kept.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
}

# For windows of few rows: to compile a plan takes longer than to interpret it, and there is nothing
# that a plan could be adapted to.
SMALL_WINDOWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def session(app_name: str, *, brief: bool = False) -> SparkSession:
    """Return the session of this process, with the source "ems"; say on stderr that it starts.

    The master comes from EMS_SPARK_MASTER, else from spark-submit, else it is local[*]. A ``brief``
    session is for a job of seconds: its start costs less, and much work more. Raises BadConfig.
    """
    if os.environ.get(REMOTE):
        raise BadConfig(f"{REMOTE} is set, and the jobs cannot run by Spark Connect: unset it")
    # The driver plans a source in another Python process, which needs the packages of this one.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"EMS {app_name}")
    submitted = was_submitted()
    master = os.environ.get(MASTER) or ("" if submitted else "local[*]")
    settings = dict(EVERYWHERE)
    if master.startswith("local"):
        settings |= LOCAL
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # The memory of the JVM, as the default of an environment variable, so that a user can set
        # more.
        os.environ.setdefault("SPARK_DRIVER_MEMORY", "2g")
        # Another JVM makes the command line of the first one.
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)
        if brief:
            settings["spark.driver.extraJavaOptions"] += f" {BRIEF}"
    if master:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    # This logger repeats as JSON what the exception says.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if submitted:
        adjust_submitted()
    began = time.monotonic()
    is_new = SparkContext._active_spark_context is None
    if is_new:
        _say(f"{app_name}: starting Spark on {master or 'the cluster'} …")
    with quiet_start():
        spark = builder.getOrCreate()
    if submitted:
        # Only now: Spark sets its own log up when the context begins.
        spark.sparkContext.setLogLevel("ERROR")
    if not spark.sparkContext.master.startswith("local"):
        spark.sparkContext.addPyFile(packed())  # before the source: it is sent with what is there
    spark.dataSource.register(EmsSource)
    describe(spark, app_name)
    if is_new:
        _say(f"{app_name}: Spark has started in {time.monotonic() - began:.1f} s")
    return spark


def describe(spark: SparkSession, what: str) -> None:
    """Name what this thread does from now on, for Spark's pages and its event log."""
    spark.sparkContext.setJobDescription(f"EMS {what}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
