"""Trace a message, or all messages with a key: sent, sequenced, claimed, done."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sparkjobs.config import Config
from sparkjobs.database import connected, fetch
from sparkjobs.databases import each
from sparkjobs.instants import instant, now
from sparkjobs.session import session
from sparkjobs.source.schemas import DEAD, DELIVERIES, MESSAGES, RETRIES, only

OF_MESSAGES = (
    *("partition_id", "topic", "partition", "offset", "message_id"),
    *("key", "producer", "created_at", "sequenced_at"),
)
OF_DELIVERIES = (
    *("id", "partition_id", "group", "first_offset", "last_offset", "progress", "kind", "attempt"),
    *("client_id", "thread", "state", "claimed_at", "started_at", "finished_at", "error"),
)
OF_RETRIES = ("partition_id", "group", "offset", "attempt", "due_at", "last_error")
OF_DEAD = ("partition_id", "group", "offset", "attempts", "error", "died_at", "redriven_at")

# The columns of an event: what happened to which message, when, where and by whom.
EVENT = ("topic", "partition", "offset", "message_id", "at", "event", "group", "who", "detail")


def add_arguments(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--message", type=int, help="the id of a message")
    which.add_argument("--key", help="the key of messages")
    parser.add_argument("--topic", help="look in this topic only, which is quicker")


def run_all(configs: Sequence[Config], options: Namespace) -> int:
    """Show what each database has; return 0 if one of them has it and none has failed."""
    lacking = []

    def look(config: Config) -> int:
        lacking.append(run(config, options))
        return 0

    return each("trace", configs, look) or min(lacking)


def run(config: Config, options: Namespace) -> int:
    if options.message is not None and (said := unsequenced(config, options.message)):
        print(said)
        return 1
    spark = session("trace", brief=True)
    messages = _load(spark, config, "messages", only(MESSAGES, *OF_MESSAGES), options.topic)
    if options.key is not None:
        wanted = messages.where(F.col("key") == options.key)
    else:
        wanted = messages.where(F.col("message_id") == options.message)
    events = trace(
        wanted.persist(),
        _load(spark, config, "deliveries", only(DELIVERIES, *OF_DELIVERIES), options.topic),
        _load(spark, config, "retries", only(RETRIES, *OF_RETRIES), options.topic),
        _load(spark, config, "dead", only(DEAD, *OF_DEAD), options.topic),
    )
    rows = events.toArrow().to_pylist()
    for row in rows:
        place = f"{row['topic']}/{row['partition']}@{row['offset']}"
        words = [row["group"], row["event"], row["who"], row["detail"]]
        at = row["at"].isoformat(sep=" ", timespec="microseconds")[:26] if row["at"] else "–"
        print(at, place, f"#{row['message_id']}", *(word for word in words if word))
    if not rows:
        print("no such message is in the log")
    return 0 if rows else 1


def unsequenced(config: Config, message: int) -> str:
    """Return why a message has no way yet: it is in the inbox, or nowhere; else an empty text."""
    with connected(config) as connection:
        rows = fetch(
            connection,
            "SELECT m.`offset`, m.`due_at`, m.`created_at`, t.`name`, p.`number` FROM `ems_msg` m"
            " JOIN `ems_partition` p ON p.`id` = m.`partition_id`"
            " JOIN `ems_topic` t ON t.`id` = p.`topic_id` WHERE m.`id` = %s",
            [message],
        )
        moment = now(connection)
    if not rows:
        return "no such message is in the log"
    offset, due_at, created_at, topic, number = rows[0]
    if offset is not None:
        return ""
    due, sent = instant(due_at), instant(created_at)
    why = f"due at {due:%Y-%m-%d %H:%M:%S} UTC" if due and due > moment else "not sequenced yet"
    return f"#{message} is in the inbox of {topic}/{number}: sent at {sent}, {why}"


def _load(
    spark: SparkSession, config: Config, table: str, schema: object, topic: str | None
) -> DataFrame:
    reader = spark.read.format("ems").schema(schema).options(config=config.path, table=table)
    # A trace shows what is there, so what is not there is no error.
    reader = reader.options(purged="skip", holes="skip")
    return (reader.option("topic", topic) if topic else reader).load()


def trace(
    messages: DataFrame, deliveries: DataFrame, retries: DataFrame, dead: DataFrame
) -> DataFrame:
    """Return all that happened to ``messages``, message by message, in order of time.

    ``messages`` must be few: they are sent to all tasks.
    """
    few = F.broadcast(messages)
    inside = F.col("offset").between(F.col("first_offset"), F.col("last_offset"))
    claims = deliveries.join(few, "partition_id").where(inside)
    at_place = ["partition_id", "offset"]
    client = F.concat_ws("@", "client_id", "thread")
    about = F.concat_ws(" ", "kind", F.lit("attempt"), "attempt")
    error = F.col("error")
    return (
        _events(
            messages.withColumn("group", F.lit(None).cast("string")),
            _event(0, "created_at", "sent", F.col("producer")),
            _event(1, "sequenced_at", "sequenced"),
        )
        .unionByName(
            _events(
                claims,
                _event(2, "claimed_at", "claimed", client, about),
                _event(3, "started_at", "started", client, about),
                _event(4, "finished_at", outcome(), client, error),
            )
        )
        .unionByName(
            _events(
                dead.join(few, at_place),
                _event(5, "died_at", "dead", None, error),
                _event(6, "redriven_at", "redriven"),
            )
        )
        .unionByName(
            _events(
                retries.join(few, at_place),
                _event(7, "due_at", "retry due", None, F.col("last_error")),
            )
        )
        .orderBy("topic", "partition", "offset", "at", "step", "group")
        .select(*EVENT)
    )


def outcome() -> Column:
    """Return how a delivery ended for an offset; progress is the first one that is not settled."""
    settled, one = F.col("offset") < F.col("progress"), F.col("kind") == "retry"
    return (
        F.when(F.col("state") == "DONE", "done")
        .when(F.col("state") == "SKIPPED", "skipped")
        .when(settled & ~one, "done, or failed on its own")
        .when(F.col("state") == "RETRY", "failed")
        .otherwise("released")
    )


def _event(
    step: int,
    at: str,
    event: str | Column,
    who: Column | None = None,
    detail: Column | None = None,
) -> Column:
    nothing = F.lit(None).cast("string")
    return F.struct(
        F.lit(step).alias("step"),
        F.col(at).alias("at"),
        (F.lit(event) if isinstance(event, str) else event).alias("event"),
        (nothing if who is None else who).alias("who"),
        (nothing if detail is None else detail).alias("detail"),
    )


def _events(frame: DataFrame, *events: Column) -> DataFrame:
    """Return the ``events`` of each row that have happened."""
    place = ("topic", "partition", "offset", "message_id", "group")
    each = frame.select(*place, F.explode(F.array(*events)).alias("e"))
    return each.select(*place, "e.*").where(F.col("at").isNotNull())
