"""Makes the Spark session of a job, and is the only module that does.

A session must never cross a fork: jobs run in processes of their own.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from sparkjobs.source.datasource import EmsSource

MASTER = "EMS_SPARK_MASTER"

# The JVM inherits the time zone of Django's process, so every part that reads clocks is set to UTC.
UTC = "-Duser.timezone=UTC"
LOGGING = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": f"{UTC} {LOGGING}",
    "spark.executor.extraJavaOptions": UTC,
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Only the days and topics that are written are replaced.
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # The name of a topic may be 007, which must stay a text.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}

# For one process on one machine: no web page, no port that others reach, and few tasks.
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def session(app_name: str) -> SparkSession:
    """Return the session of this process, with the source "ems".

    The master comes from EMS_SPARK_MASTER, else from spark-submit, else it is local[*].
    """
    # The driver plans a source in another Python process, which needs the packages of this one.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"EMS {app_name}")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = os.environ.get(MASTER) or ("" if submitted else "local[*]")
    settings = dict(EVERYWHERE)
    if master.startswith("local"):
        settings |= LOCAL
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # The memory of the JVM, as the default of an environment variable, so that a user can set
        # more.
        os.environ.setdefault("SPARK_DRIVER_MEMORY", "2g")
    if master:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    # This logger repeats as JSON what the exception says.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = builder.getOrCreate()
    spark.dataSource.register(EmsSource)
    return spark
