"""What users of Spark's streams are used to works with the source, or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkjobs.config import Config
from streams import Outgoing, send_many
from streams.log.sequencer import sequence

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.any_database,
    pytest.mark.exhaustive,
]

Ran = Callable[..., list[dict[str, Any]]]


def sent(topic: str, *keys: str) -> None:
    send_many([Outgoing(topic, key, key=key) for key in keys])
    sequence("default")


@pytest.fixture
def stream(spark: Any, config: Config) -> Callable[[str], Any]:
    def load(topic: str) -> Any:
        reader = spark.readStream.format("ems").options(config=config.path, subscribe=topic)
        return reader.load()

    return load


@pytest.fixture
def ran(spark: Any, tmp_path: Path) -> Iterator[Ran]:
    """Run a stream until nothing is left; return all that it has written so far."""

    def run(frame: Any, mode: str = "append") -> list[dict[str, Any]]:
        query = (
            frame.writeStream.format("memory")
            .queryName("habits")
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows: list[dict[str, Any]] = spark.table("habits").toArrow().to_pylist()
        return rows

    yield run
    spark.catalog.dropTempView("habits")


def test_two_streams_are_joined(stream: Callable[[str], Any], ran: Ran) -> None:
    sent("orders", "a", "b")
    sent("payments", "b", "c")
    orders = stream("orders").selectExpr("key", "timestamp AS ordered_at")
    payments = stream("payments").selectExpr("key AS paid", "timestamp AS paid_at")
    joined = orders.withWatermark("ordered_at", "1 minute").join(
        payments.withWatermark("paid_at", "1 minute"),
        on=_expression("key = paid AND paid_at >= ordered_at - INTERVAL 1 HOUR"),
    )
    assert [row["key"] for row in ran(joined)] == ["b"]


def _expression(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)
