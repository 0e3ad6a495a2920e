"""A topic is a table of SQL: made once, read by SELECT and written by INSERT INTO."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkjobs.config import Config
from streams import send
from streams.log.sequencer import sequence
from streams.models import Message, Topic

pytestmark = pytest.mark.django_db(transaction=True)

Sql = Callable[[str], list[Any]]


@pytest.fixture
def sql(spark: Any, config: Config) -> Iterator[Sql]:
    """Run a statement: ``config`` in it is the option file, and the table is dropped at the end."""

    def run(statement: str) -> list[Any]:
        rows = spark.sql(statement.replace("CONFIG", f"config '{config.path}'")).collect()
        return [tuple(row) for row in rows]

    yield run
    spark.sql("DROP TABLE IF EXISTS shop")


def stored() -> list[tuple[str | None, str, str]]:
    rows = Message.objects.order_by("pk").values_list("key", "body", "body_type")
    return [(key, bytes(body).decode(), body_type) for key, body, body_type in rows]


def test_a_topic_is_a_table_that_is_read_and_written(sql: Sql) -> None:
    Topic.objects.create(name="orders")
    send("orders", "first", key="k")
    sequence("default")
    sql(
        "CREATE TABLE shop USING ems OPTIONS (CONFIG, topic 'orders', bodyType 'json',"
        " purged 'skip') COMMENT 'what was bought' TBLPROPERTIES (colour 'red')"
    )
    read = "SELECT key, CAST(body AS STRING), offset FROM shop ORDER BY offset"
    assert sql(read) == [("k", "first", 0)]
    sql("INSERT INTO shop (body, key) SELECT CAST('{\"n\": 1}' AS BINARY), 'a'")
    sql("INSERT INTO shop BY NAME SELECT 'b' AS key, CAST('2' AS BINARY) AS body")
    sequence("default")
    assert stored()[1:] == [("a", '{"n": 1}', "json"), ("b", "2", "json")]
    assert sql(read)[1:] == [("a", '{"n": 1}', 1), ("b", "2", 2)]
    with pytest.raises(Exception, match="offset is given to a message: it must be NULL"):
        sql("INSERT INTO shop (body, offset) SELECT CAST('3' AS BINARY), 7")
    with pytest.raises(Exception, match="does not support dynamic overwrite"):
        sql("INSERT OVERWRITE shop (body) SELECT CAST('3' AS BINARY)")
    assert len(stored()) == 3


@pytest.mark.exhaustive
def test_a_table_by_the_names_of_kafka_has_a_value(sql: Sql) -> None:
    send("orders", "first")
    sequence("default")
    sql("CREATE TABLE shop USING ems OPTIONS (CONFIG, subscribe 'orders')")
    assert sql("SELECT CAST(value AS STRING) FROM shop") == [("first",)]
    sql("INSERT INTO shop (topic, value) SELECT 'orders', CAST('second' AS BINARY)")
    assert stored()[1:] == [(None, "second", "bytes")]


def test_what_is_no_option_is_refused_when_the_table_is_made(sql: Sql) -> None:
    with pytest.raises(Exception, match="unknown options: topik"):
        sql("CREATE TABLE shop USING ems OPTIONS (CONFIG, topik 'orders')")
