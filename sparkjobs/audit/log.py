"""Checks the log: each offset of a partition exists once, and time never falls along them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs.audit.findings import HOLE, ORDER, REPEAT, Fault, findings

# Offsets that one task sorts, so that a whole partition is not sorted by one task.
BUCKET = 100_000

LOGS = "partition_id long, first long, end long"


def log_findings(messages: DataFrame, logs: DataFrame, bucket: int = BUCKET) -> DataFrame:
    """Return holes, repeats and order breaks of the offsets first … end - 1 of each log.

    ``messages`` has partition_id, offset and sequenced_at; ``logs`` has the columns LOGS.
    """
    w = Window.partitionBy("partition_id", "bucket").orderBy("offset", "is_real", "sequenced_at")
    rows = _with_edges(messages, logs, bucket)
    looked = rows.select(
        "*",
        F.lag("offset").over(w).alias("before"),
        F.lag("is_real").over(w).alias("real_before"),
        F.lag("sequenced_at").over(w).alias("at_before"),
    )
    offset, before, real = F.col("offset"), F.col("before"), F.col("is_real")
    return findings(
        looked,
        Fault(HOLE, "not in the log", offset > before + 1, before + 1, offset - 1),
        Fault(
            REPEAT,
            "more than once in the log",
            real & F.col("real_before") & (offset == before),
            offset,
            offset,
        ),
        Fault(
            ORDER,
            "sequenced before the one before it",
            real & (F.col("sequenced_at") < F.col("at_before")),
            offset,
            offset,
        ),
        group=F.lit(None).cast("long"),
    )


def _with_edges(messages: DataFrame, logs: DataFrame, bucket: int) -> DataFrame:
    """Return the messages in buckets, each with its neighbours outside of it.

    The offsets just outside are added without a time, so that a hole at an edge is found even in
    an empty bucket. The last message of the bucket before is added, so that a time that falls
    between two buckets is found.
    """
    number = F.floor(F.col("offset") / bucket)
    real = messages.select(
        "partition_id",
        "offset",
        "sequenced_at",
        number.alias("bucket"),
        F.lit(True).alias("is_real"),
    )
    last = real.where(F.col("offset") % bucket == bucket - 1).select(
        "partition_id", "offset", "sequenced_at", F.col("bucket") + 1, F.lit(False)
    )
    numbers = F.sequence(F.floor(F.col("first") / bucket), F.floor((F.col("end") - 1) / bucket))
    buckets = logs.where("first < end").select("*", F.explode(numbers).alias("bucket"))
    below = F.greatest(F.col("first"), F.col("bucket") * bucket) - 1
    above = F.least(F.col("end"), (F.col("bucket") + 1) * bucket)
    no_time = F.lit(None).cast("timestamp")
    edges = buckets.select("*", F.explode(F.array(below, above)).alias("offset")).select(
        "partition_id", "offset", no_time, "bucket", F.lit(False)
    )
    return real.union(last).union(edges)
