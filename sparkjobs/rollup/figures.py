"""Computes the figures, in pure functions from DataFrame to DataFrame: no database, no clock.

They take the columns of source/schemas.py, and return those of the tables of rollup/tables.py.
Deliveries have one more: ``waits``, the offsets of rollup/waiting.py, or NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from sparkjobs.rollup import histogram

# The names of the legs of a message's way, each with the two instants between which it lies.
LEGS = {
    "sequenced": ("created_at", "sequenced_at"),
    "claimed": ("sequenced_at", "claimed_at"),
    "done": ("claimed_at", "finished_at"),
    "total": ("created_at", "finished_at"),
}
HOT_KEYS = 20
# In offsets: how long deliveries usually are, where nobody has looked.
WIDTH = 100
# The error of a delivery that was taken from its process begins with one of these: the sweep has
# expired it, or an operator has given its call up.
TAKEN = ("ProcessDied", "CallGivenUp")
# What a delivery of several offsets has noted: the offsets that failed, by the text of the error.
ERRORS = "map<string, array<long>>"
# In characters: what the tables keep of the name of a class of error.
MAX_CLASS = 255

MINUTE = "group_id long, minute timestamp"
MESSAGES_OF_TRAFFIC = ("partition_id", "offset", "key", "size", "delayed", "sequenced_at")
MESSAGES_OF_LATENCY = ("partition_id", "offset", "tag", "delayed", "created_at", "sequenced_at")
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
    not_done = f.col("failed") + f.col("missing") + f.col("passed") + _waits()
    # An ordered group has no retries: its cursor goes back, and the next attempt is a claim, too.
    again = (f.col("kind") == "retry") | (f.col("attempt") > 1)
    was_retry = again & (f.col("state") != "RELEASED")
    took = _seconds("claimed_at", "finished_at")
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
            f.sum(took).alias("busy_seconds"),
            f.max(took).alias("longest_seconds"),
        )
    )


def first_attempts(deliveries: DataFrame) -> DataFrame:
    """Return the deliveries whose messages count for the latencies.

    Of those that gave messages back, what they had done before counts: mostly slow messages.
    Those whose messages were all passed over, or wait for their key, have handled none.
    """
    first = (f.col("kind") == "new") & (f.col("attempt") == 1)
    settled = f.col("progress") - f.col("first_offset")
    return _ended(deliveries).where(first & (settled > f.col("passed") + _waits()))


def touched(deliveries: DataFrame, block: int) -> DataFrame:
    """Return which offsets the first attempts have, as ranges first … end - 1 of each partition.

    There is at most one range for each ``block`` offsets in which deliveries begin, with the number
    of its deliveries, and of their offsets.
    """
    return (
        first_attempts(deliveries)
        .groupBy("partition_id", f.floor(f.col("first_offset") / block).alias("block"))
        .agg(
            f.min("first_offset").alias("first"),
            f.max("progress").alias("end"),
            f.count("*").alias("deliveries"),
            f.sum(f.col("progress") - f.col("first_offset")).alias("offsets"),
        )
        .drop("block")
    )


def latencies(
    deliveries: DataFrame,
    messages: DataFrame,
    width: int = WIDTH,
    tags: Mapping[int, Sequence[str]] = MappingProxyType({}),
    *,
    small: bool = False,
) -> DataFrame:
    """Compute how long messages took to the end of their first attempt, with a row for each leg.

    The percentiles are exact, in seconds, with interpolation between two values.
    The histogram is for those of longer times.

    Messages and deliveries meet in buckets of ``width`` offsets; the mean length of the deliveries
    is the best. With ``small``, the deliveries fit into the memory of each executor. ``tags`` are
    those that groups want, by id: a delivery says how many messages it has passed over, not which.
    """
    first, last = f.col("first_offset"), f.col("progress") - 1
    buckets = f.explode(f.sequence(f.floor(first / width), f.floor(last / width)))
    handled = first_attempts(deliveries).select(
        *("group_id", "partition_id", "first_offset", "progress", "claimed_at", "finished_at"),
        *("passed", "waits"),
        buckets.alias("bucket"),
    )
    timed = (
        messages.withColumn("bucket", f.floor(f.col("offset") / width))
        .join(f.broadcast(handled) if small else handled, ["partition_id", "bucket"])
        .where((f.col("offset") >= first) & (f.col("offset") <= last) & _was_wanted(tags))
        .where(~f.coalesce(f.array_contains("waits", f.col("offset")), f.lit(False)))
        .select("group_id", _minute("finished_at"), *(_leg(name) for name in LEGS))
    )
    percents = f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99))
    # Legs are columns up to here, since a row for each leg of each message would be four times the
    # rows; NULL counts for nothing.
    measured = timed.groupBy("group_id", "minute").agg(
        *(
            f.struct(
                f.lit(leg).alias("leg"),
                f.count(leg).alias("messages"),
                f.avg(leg).alias("mean"),
                f.percentile(leg, percents).alias("p"),
                f.max(leg).alias("worst"),
                histogram.buckets(f.col(leg)).alias("buckets"),
            ).alias(leg)
            for leg in LEGS
        )
    )
    rows = measured.select("group_id", "minute", f.explode(f.array(*LEGS)).alias("l"))
    return rows.where("l.messages > 0").select(
        *("group_id", "minute", "l.leg", "l.messages", "l.mean"),
        *(f.col("l.p")[i].alias(name) for i, name in enumerate(("p50", "p95", "p99"))),
        "l.worst",
        histogram.as_text(f.col("l.buckets")).alias("histogram"),
    )


def _was_wanted(tags: Mapping[int, Sequence[str]]) -> Column:
    wanted = f.col("passed") == 0
    for group, names in tags.items():
        wanted |= (f.col("group_id") == group) & f.col("tag").isin(*names)
    # Of a group whose tags are not known all count.
    return wanted | ~f.col("group_id").isin(*tags)


def _leg(name: str) -> Column:
    begin, end = LEGS[name]
    # A delayed message waits on purpose.
    counts = f.lit(begin != "created_at") | ~f.col("delayed")
    return f.when(counts, _seconds(begin, end)).alias(name)


def in_minutes(deliveries: DataFrame, minutes: DataFrame) -> DataFrame:
    """Return the deliveries that ended in these minutes (MINUTE) of their groups."""
    ended = f.date_trunc("minute", deliveries["finished_at"])
    same = (deliveries["group_id"] == minutes["group_id"]) & (ended == minutes["minute"])
    return deliveries.join(f.broadcast(minutes), same, "leftsemi")


def error_classes(deliveries: DataFrame, letters: DataFrame) -> DataFrame:
    """Count how often each group failed with which class of error, by minute.

    What a delivery has lost, and failures that it has not noted, count for its last error.
    ``letters`` are dead letters, counted by their own classes (LETTERS in rollup/letters.py).
    Only the name is used, since only letters have the module.
    """
    failed = (
        _ended(deliveries)
        .where(f.col("failed") + _lost() > 0)
        .select("group_id", _minute("finished_at"), f.explode(_by_error()).alias("one"))
        .where("one.failed > 0")
        .select(
            *("group_id", "minute"),
            _class(f.substring_index("one.text", ":", 1)),
            "one.failed",
            f.lit(0).cast("long").alias("dead"),
        )
    )
    died = letters.select(
        "group_id",
        _minute("died_at"),
        _class(f.substring_index("error_class", ".", -1)),
        f.lit(0).cast("long").alias("failed"),
        f.col("letters").alias("dead"),
    )
    return (
        failed.unionByName(died)
        .groupBy("group_id", "minute", "error_class")
        .agg(f.sum("failed").alias("failed"), f.sum("dead").alias("dead"))
    )


def hot_keys(messages: DataFrame, most: int = HOT_KEYS) -> DataFrame:
    """Return the keys with most messages of each topic and hour, and their share of the topic.

    Each row has the number of all messages of the topic in the hour, as ``total``.
    """
    hour = f.date_trunc("hour", "sequenced_at").alias("hour")
    by_key = messages.groupBy("topic", hour, "key").agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
    of_topic = Window.partitionBy("topic", "hour")
    counted = by_key.withColumn("total", f.sum("messages").over(of_topic))
    order = of_topic.orderBy(f.desc("messages"), "key")
    ranked = counted.where("key IS NOT NULL").withColumn("place", f.row_number().over(order))
    share = (f.col("messages") / f.col("total")).alias("share")
    return ranked.where(f.col("place") <= most).select(
        "topic", "hour", "place", "key", "messages", "bytes", share, "total"
    )


def _ended(deliveries: DataFrame) -> DataFrame:
    """Return the deliveries that have ended, without skips, which nobody handled."""
    return deliveries.where(
        f.col("finished_at").isNotNull() & f.col("state").isin("DONE", "RETRY", "RELEASED")
    )


def _lost() -> Column:
    """Return how many messages of a delivery that was taken were not settled; 0 for others."""
    taken = f.substring_index("error", ":", 1).isin(*TAKEN)
    unsettled = f.col("last_offset") + 1 - f.col("progress")
    return f.when((f.col("state") == "RETRY") & taken, unsettled).otherwise(f.lit(0))


def _waits() -> Column:
    """Return how many messages a delivery has passed that come again with their attempt unspent.

    Of one offset, its state says it: nothing has failed, and it comes again.
    """
    alone = (f.col("first_offset") == f.col("last_offset")) & (f.col("state") == "RETRY")
    settled = f.col("progress") - f.col("first_offset")
    of_one = f.when(alone, f.greatest(settled - f.col("failed"), f.lit(0)))
    of_many = f.when(f.col("waits").isNotNull(), f.size("waits"))
    return f.coalesce(of_one, of_many, f.lit(0))


def _by_error() -> Column:
    """Return how many messages of a delivery have failed with which error, or were lost."""
    noted = f.map_entries(f.from_json(f.coalesce("errors", f.lit("{}")), ERRORS))
    by_error = f.transform(
        noted,
        lambda one: f.struct(
            one["key"].alias("text"), f.size(one["value"]).cast("long").alias("failed")
        ),
    )
    count = _sum(by_error)
    rest = f.struct(
        f.col("error").alias("text"), (f.col("failed") + _lost() - count).alias("failed")
    )
    return f.concat(by_error, f.array(rest))


def _sum(by_error: Column) -> Column:
    return f.aggregate(by_error, f.lit(0).cast("long"), lambda n, one: n + one["failed"])


def _class(name: Column) -> Column:
    # A server takes texts that differ only in blanks at their end for the same.
    return f.rtrim(f.substring(name, 1, MAX_CLASS)).alias("error_class")


def _minute(column: str) -> Column:
    return f.date_trunc("minute", column).alias("minute")


def _seconds(begin: str, end: str) -> Column:
    return (f.unix_micros(end) - f.unix_micros(begin)) / f.lit(1e6)
