"""Computes the figures, in pure functions from DataFrame to DataFrame: no database, no clock.

They take the columns of source/schemas.py, and return those of the tables of rollup/tables.py.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

# The names of the legs of a message's way, each with the two instants between which it lies.
LEGS = {
    "sequenced": ("created_at", "sequenced_at"),
    "claimed": ("sequenced_at", "claimed_at"),
    "done": ("claimed_at", "finished_at"),
    "total": ("created_at", "finished_at"),
}
HOT_KEYS = 20
# The error of a delivery that the sweep has expired begins with this.
PROCESS_DIED = "ProcessDied"

SAMPLE = "group_id long, at timestamp, lag double"
MESSAGES_OF_TRAFFIC = ("partition_id", "offset", "key", "size", "delayed", "sequenced_at")
MESSAGES_OF_LATENCY = ("partition_id", "offset", "delayed", "created_at", "sequenced_at")
MESSAGES_OF_KEYS = ("topic", "key", "size", "sequenced_at")


def traffic(messages: DataFrame) -> DataFrame:
    """Count messages, bytes, keys and delayed ones of each partition and minute.

    A row has the range of its offsets: time never falls as offsets rise, so a minute is one range.
    """
    return messages.groupBy("partition_id", _minute("sequenced_at")).agg(
        f.min("offset").alias("first_offset"),
        (f.max("offset") + 1).alias("end_offset"),
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.count_distinct("key").alias("keys"),
        f.sum(f.col("delayed").cast("long")).alias("delayed"),
    )


def consumption(deliveries: DataFrame) -> DataFrame:
    """Count what each thread of each client has finished for each group, by minute, in messages."""
    settled = f.col("progress") - f.col("first_offset")
    not_done = f.col("failed") + f.col("missing") + f.col("passed")
    was_retry = (f.col("kind") == "retry") & (f.col("state") != "RELEASED")
    return (
        _ended(deliveries)
        .groupBy("group_id", _minute("finished_at"), "client_id", "thread")
        .agg(
            f.count("*").alias("deliveries"),
            # Never below 0: a final failure whose body is gone counts as failed and as missing.
            f.sum(f.greatest(settled - not_done, f.lit(0))).alias("consumed"),
            f.sum("failed").alias("failed"),
            f.sum(was_retry.cast("long")).alias("retried"),
            f.sum("dead").alias("dead"),
            f.sum(_lost()).alias("lost"),
            f.sum("missing").alias("missing"),
            f.sum("passed").alias("passed"),
            f.sum(_seconds("claimed_at", "finished_at")).alias("busy_seconds"),
        )
    )


def first_attempts(deliveries: DataFrame) -> DataFrame:
    """Return the deliveries whose messages count for the latencies."""
    done = f.col("state").isin("DONE", "RETRY") & (f.col("kind") == "new")
    return _ended(deliveries).where(done & (f.col("progress") > f.col("first_offset")))


def latencies(deliveries: DataFrame, messages: DataFrame) -> DataFrame:
    """Compute how long messages took to the end of their first attempt, with a row for each leg.

    The percentiles are exact, in seconds, with interpolation between two values.
    """
    offsets = f.explode(f.sequence(f.col("first_offset"), f.col("progress") - 1))
    handled = first_attempts(deliveries).select(
        "group_id", "partition_id", offsets.alias("offset"), "claimed_at", "finished_at"
    )
    timed = handled.join(messages, ["partition_id", "offset"])
    legs = [
        f.struct(
            f.lit(leg).alias("leg"),
            # A delayed message waits on purpose.
            f.when(f.lit(begin != "created_at") | ~f.col("delayed"), _seconds(begin, end)).alias(
                "seconds"
            ),
        )
        for leg, (begin, end) in LEGS.items()
    ]
    measured = (
        timed.select("group_id", _minute("finished_at"), f.explode(f.array(*legs)).alias("l"))
        .select("group_id", "minute", "l.leg", "l.seconds")
        .where("seconds IS NOT NULL")
    )
    percentiles = f.percentile("seconds", f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99)))
    return (
        measured.groupBy("group_id", "minute", "leg")
        .agg(
            f.count("*").alias("messages"),
            f.avg("seconds").alias("mean"),
            percentiles.alias("p"),
            f.max("seconds").alias("worst"),
        )
        .select(
            *("group_id", "minute", "leg", "messages", "mean"),
            *(f.col("p")[i].alias(name) for i, name in enumerate(("p50", "p95", "p99"))),
            "worst",
        )
    )


def error_classes(deliveries: DataFrame, dead: DataFrame) -> DataFrame:
    """Count how often each group failed with which class of error, by minute.

    A delivery has the text of its last error only, so all its failures count for that class. Each
    dead letter has its own class. Only the name is used, since only letters have the module.
    """
    failed = (
        _ended(deliveries)
        .withColumn("failed", f.col("failed") + _lost())
        .where("failed > 0")
        .select(
            "group_id",
            _minute("finished_at"),
            f.substring_index("error", ":", 1).alias("error_class"),
            "failed",
            f.lit(0).cast("long").alias("dead"),
        )
    )
    died = dead.select(
        "group_id",
        _minute("died_at"),
        f.substring_index("error_class", ".", -1).alias("error_class"),
        f.lit(0).cast("long").alias("failed"),
        f.lit(1).cast("long").alias("dead"),
    )
    return (
        failed.unionByName(died)
        .groupBy("group_id", "minute", "error_class")
        .agg(f.sum("failed").alias("failed"), f.sum("dead").alias("dead"))
    )


def hot_keys(messages: DataFrame, most: int = HOT_KEYS) -> DataFrame:
    """Return the keys with most messages of each topic and hour, and their share of the topic."""
    hour = f.date_trunc("hour", "sequenced_at").alias("hour")
    by_key = messages.groupBy("topic", hour, "key").agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
    of_topic = Window.partitionBy("topic", "hour")
    shared = by_key.withColumn("share", f.col("messages") / f.sum("messages").over(of_topic))
    order = of_topic.orderBy(f.desc("messages"), "key")
    ranked = shared.where("key IS NOT NULL").withColumn("place", f.row_number().over(order))
    return ranked.where(f.col("place") <= most).select(
        "topic", "hour", "place", "key", "messages", "bytes", "share"
    )


def trends(samples: DataFrame) -> DataFrame:
    """Compute by how many messages a minute the lag of each group grows, and when it will be 0.

    The trend is the slope of a line through the samples (SAMPLE); without two instants it is
    unknown. The time to clear is unknown while the lag does not fall, and 0 if there is no lag.
    """
    minutes = f.unix_micros("at") / f.lit(60e6)
    fitted = samples.groupBy("group_id").agg(
        f.regr_slope("lag", minutes).alias("trend"), f.max_by("lag", "at").alias("lag")
    )
    falling = f.try_divide(f.col("lag") * 60, -f.col("trend"))
    clear = f.when(f.col("lag") == 0, f.lit(0.0)).when(f.col("trend") < 0, falling)
    return fitted.select("group_id", "trend", clear.alias("clear_seconds"))


def _ended(deliveries: DataFrame) -> DataFrame:
    """Return the deliveries that have ended, without skips, which nobody handled."""
    return deliveries.where(
        f.col("finished_at").isNotNull() & f.col("state").isin("DONE", "RETRY", "RELEASED")
    )


def _lost() -> Column:
    """Return how many messages of an expired delivery were not settled; 0 for others."""
    taken = (f.col("state") == "RETRY") & f.col("error").startswith(PROCESS_DIED)
    unsettled = f.col("last_offset") + 1 - f.col("progress")
    return f.when(taken, unsettled).otherwise(f.lit(0))


def _minute(column: str) -> Column:
    return f.date_trunc("minute", column).alias("minute")


def _seconds(begin: str, end: str) -> Column:
    return (f.unix_micros(end) - f.unix_micros(begin)) / f.lit(1e6)
