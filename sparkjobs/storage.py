"""Reads, lists and deletes Parquet files by day and topic, wherever Spark can write.

Only folders that are named are listed: an archive of years has tens of thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from sparkjobs.source.schemas import MESSAGES

# The version of the columns of MESSAGES, written into every file. Raise it when they change.
SCHEMA_VERSION = 1
VERSION = "ems.schema"

# The columns of the files and the column of the day; day and topic are in the names of the folders.
STORED = StructType([*MESSAGES.fields, StructField("date", StringType())])

# What Spark writes as %XX in the names of folders.
ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}


@dataclass(frozen=True)
class File:
    """The name of a file in its folder, and its size in bytes."""

    name: str
    size: int


def place(day: date | str, topic: str) -> str:
    """Return the folder of a day of a topic, below the root, as Spark names it."""
    return f"date={day}/topic={escaped(topic)}"


def escaped(value: str) -> str:
    """Return the value of a column as Spark writes it in the name of a folder."""
    return "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in value)


def read(spark: SparkSession, root: str, paths: Sequence[str]) -> DataFrame:
    """Return the messages in these files or folders below ``root``, and list nothing else."""
    if not paths:
        return spark.createDataFrame([], MESSAGES)
    below = [f"{root}/{path}" for path in paths]
    return spark.read.schema(STORED).option("basePath", root).parquet(*below)


def write(messages: DataFrame, root: str, *, prefix: str = "part", mode: str = "append") -> None:
    """Write messages with the column ``date`` into the folders of their days and topics.

    ``prefix`` begins the names of the files; ``mode`` overwrite replaces the folders of these days
    and topics, and no others.
    """
    version = F.col("offset").alias("offset", metadata={VERSION: SCHEMA_VERSION})
    (
        messages.withColumn("offset", version)
        .write.mode(mode)
        .option("partitionOverwriteMode", "dynamic")
        .option("mapreduce.output.basename", prefix)
        .partitionBy("date", "topic")
        .parquet(root)
    )


def files(spark: SparkSession, folder: str) -> list[File]:
    """Return the files of one folder, without hidden ones; none if there is no such folder."""
    path, system = _opened(spark, folder)
    if not system.exists(path):
        return []
    found = [
        File(status.getPath().getName(), status.getLen())
        for status in system.listStatus(path)
        if status.isFile()
    ]
    return [file for file in found if not file.name.startswith((".", "_"))]


def exists(spark: SparkSession, path: str) -> bool:
    """Tell whether a file or folder is there."""
    opened, system = _opened(spark, path)
    return bool(system.exists(opened))


def delete(spark: SparkSession, path: str) -> None:
    """Delete a file, or a folder with all that is in it, if it is there."""
    opened, system = _opened(spark, path)
    system.delete(opened, True)


def _opened(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    opened = context._jvm.org.apache.hadoop.fs.Path(path)
    return opened, opened.getFileSystem(context._jsc.hadoopConfiguration())
