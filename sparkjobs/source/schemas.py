"""Defines the columns of the source "ems".

A reader gets only the columns of the schema it is given, and the database sends no others::

    spark.read.format("ems").schema(only(MESSAGES, "partition_id", "size")).load()
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


MESSAGES = _schema(
    partition_id=LongType(),
    topic=StringType(),
    partition=IntegerType(),
    offset=LongType(),
    message_id=LongType(),
    key=StringType(),
    tag=StringType(),
    headers=StringType(),  # JSON, as the database gives it
    body=BinaryType(),
    body_type=StringType(),
    size=LongType(),
    producer=StringType(),
    delayed=BooleanType(),
    created_at=TimestampType(),
    sequenced_at=TimestampType(),
)

# What the source gives of messages: under the names that users of Kafka's source know, too, the
# body, and when a message came into the log. The archive has the columns above only.
BODY, VALUE = "body", "value"
# Why a body cannot be read, with mode=PERMISSIVE: the body is null then.
BODY_ERROR = "body_error"
OF_BODIES = {BODY, VALUE, BODY_ERROR}
LOADED = StructType(
    [
        *MESSAGES.fields,
        StructField("timestamp", TimestampType()),
        StructField(VALUE, BinaryType()),
        StructField(BODY_ERROR, StringType()),
    ]
)

DELIVERIES = _schema(
    id=LongType(),
    group_id=LongType(),
    partition_id=LongType(),
    topic=StringType(),
    partition=IntegerType(),
    group=StringType(),
    first_offset=LongType(),
    last_offset=LongType(),
    progress=LongType(),
    kind=StringType(),
    attempt=LongType(),
    client_id=StringType(),
    thread=StringType(),
    state=StringType(),
    claimed_at=TimestampType(),
    started_at=TimestampType(),
    deadline=TimestampType(),
    finished_at=TimestampType(),
    failed=LongType(),
    dead=LongType(),
    missing=LongType(),
    passed=LongType(),
    error=StringType(),
    errors=StringType(),  # JSON: the offsets that failed, by the text of the error
)

RETRIES = _schema(
    id=LongType(),
    group_id=LongType(),
    partition_id=LongType(),
    topic=StringType(),
    partition=IntegerType(),
    group=StringType(),
    offset=LongType(),
    attempt=LongType(),
    due_at=TimestampType(),
    delivery_id=LongType(),
    dead_letter_id=LongType(),
    again=BooleanType(),
    alone=BooleanType(),
    last_error=StringType(),
)

DEAD = _schema(
    id=LongType(),
    group_id=LongType(),
    partition_id=LongType(),
    topic=StringType(),
    partition=IntegerType(),
    group=StringType(),
    offset=LongType(),
    message_id=LongType(),
    key=StringType(),
    tag=StringType(),
    headers=StringType(),
    body=BinaryType(),
    body_type=StringType(),
    size=LongType(),
    producer=StringType(),
    sent_at=TimestampType(),
    attempts=LongType(),
    error_class=StringType(),
    error=StringType(),
    traceback=StringType(),
    died_at=TimestampType(),
    redriven_at=TimestampType(),
    body_error=StringType(),
)


def only(schema: StructType, *names: str) -> StructType:
    """Return the schema of these columns, in this order."""
    return StructType([schema[name] for name in names])
