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
def ran(tmp_path: Path) -> Ran:
    """Run a stream until nothing is left; return all that it has written so far."""
    rows: list[dict[str, Any]] = []

    def run(frame: Any, mode: str = "append") -> list[dict[str, Any]]:
        query = (
            frame.writeStream.foreachBatch(lambda batch, _id: rows.extend(_dicts(batch)))
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return rows

    return run


def _dicts(batch: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in batch.collect()]


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


def test_real_time_is_for_sources_that_spark_has_itself(
    stream: Callable[[str], Any], tmp_path: Path
) -> None:
    sent("orders", "a")
    writer = stream("orders").writeStream.format("console").outputMode("update")
    with pytest.raises(Exception, match="REAL"):
        query = (
            writer.option("checkpointLocation", str(tmp_path / "c"))
            .trigger(realTime="5 seconds")
            .start()
        )
        query.awaitTermination(30)


def test_a_state_is_kept_for_each_key(spark: Any, stream: Callable[[str], Any], ran: Ran) -> None:
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):  # type: ignore[misc]  # pyspark has no types for it
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            from pyspark.sql import Row

            before = self.seen.get()[0] if self.seen.exists() else 0
            self.seen.update((before + sum(1 for _row in rows),))
            yield Row(key=key[0], n=self.seen.get()[0])

        def close(self) -> None:
            pass

    name = "spark.sql.streaming.stateStore.providerClass"
    state = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set(name, state)
    try:
        counted = (
            stream("orders")
            .groupBy("key")
            .transformWithState(Count(), "key string, n long", "Update", "None")
        )
        sent("orders", "a", "b", "a")
        ran(counted, "update")
        sent("orders", "a")
        rows = ran(counted, "update")
    finally:
        spark.conf.unset(name)
    assert {"key": "a", "n": 3} in rows


def _expression(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)
