"""The stream gives every message once, in batches of the size asked for, also through kills."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from monitoring.models import LedgerEntry
from sparkjobs.config import Config
from sparkjobs.errors import BadOption
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Partition
from tests.hostapp.models import Handled
from tests.processes import Spawn

pytestmark = pytest.mark.django_db(transaction=True)


def sent(topic: str, messages: int) -> None:
    send_many([Outgoing(topic, number) for number in range(messages)])
    sequence("default")


@pytest.fixture
def progress() -> list[Any]:
    """What the queries of ``batches`` say of their batches."""
    return []


@pytest.fixture
def batches(spark: Any, config: Config, tmp_path: Path, progress: list[Any]) -> Any:
    """Run the stream until nothing is left; the offsets of each batch, topic by topic."""

    def run(**options: object) -> list[list[str]]:
        seen: list[list[str]] = []

        def note(frame: Any, batch: int) -> None:
            rows = frame.select("topic", "offset").toArrow().to_pylist()
            seen.append(sorted(f"{row['topic']}{row['offset']}" for row in rows))

        reader = spark.readStream.format("ems").option("config", config.path)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        query = (
            reader.load()
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress.extend(query.recentProgress)
        return seen

    return run


def test_it_reads_what_is_there_in_bounded_batches_and_goes_on_where_it_was(
    batches: Any, progress: list[Any]
) -> None:
    sent("a", 5)
    sent("b", 1)
    assert batches(maxMessagesPerTrigger=3) == [["a0", "a1", "b0"], ["a2", "a3", "a4"]]
    latest = [json.loads(batch["sources"][0]["latestOffset"]) for batch in progress[:2]]
    assert [one["maxOffsetsBehindLatest"] for one in latest] == [3, 0]
    assert batches(maxMessagesPerTrigger=3) == []
    sent("a", 1)
    sent("c", 2)  # a partition that was not there before
    assert batches() == [["a5", "c0", "c1"]]


@pytest.mark.exhaustive
def test_it_begins_at_the_end_if_told_so(batches: Any) -> None:
    sent("a", 5)
    batches(startingOffsets="latest")
    sent("a", 2)
    assert batches(startingOffsets="latest") == [["a5", "a6"]]


@pytest.mark.exhaustive
def test_what_was_purged_before_it_was_read_is_an_error_unless_the_rest_is_enough(
    batches: Any,
) -> None:
    sent("a", 2)
    batches()
    sent("a", 4)
    Message.objects.filter(offset__lt=4).delete()
    Partition.objects.update(first_offset=4)
    with pytest.raises(Exception, match="the stream is at offset 2, those before 4 have been"):
        batches()
    assert batches(purged="skip") == [["a4", "a5"]]


@pytest.mark.exhaustive
def test_what_is_not_in_the_log_ends_the_stream_unless_the_rest_is_enough(batches: Any) -> None:
    sent("a", 2)
    batches()
    sent("a", 2)
    Message.objects.all().delete()
    sent("a", 1)
    with pytest.raises(Exception, match="a/0: 2 offsets are not in the log: 2 … 3; with"):
        batches()
    assert batches(holes="skip") == [["a4"]]


def test_a_limit_is_shared_out_so_that_a_long_partition_does_not_keep_others_waiting() -> None:
    from sparkjobs.source.limits import shared

    assert shared({"1": 1000, "2": 3, "3": 20}, 30) == {"1": 13, "2": 3, "3": 14}
    assert shared({"1": 5, "2": 5}, 100) == {"1": 5, "2": 5}
    # If there are more partitions than that, they take turns.
    busy = {"2": 1, "3": 1, "11": 900, "30": 900}
    assert shared(busy, 2) == {"2": 1, "3": 1}
    assert shared(busy, 2, served=3) == {"11": 1, "30": 1}
    assert shared(busy, 3, served=11) == {"30": 1, "2": 1, "3": 1}


STREAM = """
import os, signal, sys
os.environ["EMS_SPARK_MASTER"] = "local[1]"
os.environ["TZ"] = "UTC"
from sparkjobs import session as sessions
from sparkjobs.config import Config
from sparkjobs.database import insert
from sparkjobs.archive.ledger import into_database
from tests.spark.small import SMALL

path, checkpoint, when = sys.argv[1:]
config = Config.load(path)
sessions.LOCAL.update(SMALL)


def die():
    os.killpg(0, signal.SIGKILL)  # Java as well


def write(connection, table):
    rows = [("g", r["topic"], r["partition"], r["offset"], "") for r in table.to_pylist()]
    insert(connection, "hostapp_handled", ["group", "topic", "partition", "offset", "value"], rows)
    if when == "before" and rows[0][3] >= 20:
        die()


once = into_database(config, write)


def each(frame, batch):
    once(frame, batch)
    if when == "after" and batch == 1:
        die()


spark = sessions.session("stream")
stream = spark.readStream.format("ems").options(config=path, maxMessagesPerTrigger=10).load()
writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.mysql
@pytest.mark.exhaustive
@pytest.mark.timeout(400)
def test_it_writes_each_message_once_into_the_database_though_it_is_killed(
    spawn: Spawn, option_file: Path, tmp_path: Path
) -> None:
    sent("a", 45)
    arguments = (option_file, tmp_path / "checkpoint")
    # Where a batch is in the database, and Spark has not noted it; then where it is half written.
    for when, batches in (("after", 2), ("before", 2)):
        child = spawn(STREAM, *arguments, when)
        assert child.wait(120) == -signal.SIGKILL, child.text()
        assert Handled.objects.count() == batches * 10
    spawn(STREAM, *arguments, "never").succeed(120)
    offsets = Handled.objects.order_by("offset").values_list("offset", flat=True)
    assert list(offsets) == list(range(45))
    entries = LedgerEntry.objects.order_by("batch").values_list("batch", flat=True)
    assert list(entries) == [3, 4]  # the newest two


class OfStream:
    """Stands for a DataFrame that Spark gives to foreachBatch."""

    sparkSession = sparkContext = property(lambda self: self)  # noqa: N815 - Spark's names

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        return "query"

    def toArrow(self) -> None:  # noqa: N802
        return None


def test_a_batch_of_an_old_checkpoint_is_not_passed_over(config: Config) -> None:
    from sparkjobs.archive.ledger import into_database
    from sparkjobs.errors import WriteRefused

    written: list[Any] = []
    each = into_database(config, lambda connection, table: written.append(table))
    for batch in (0, 1, 1, 2):
        each(OfStream(), batch)
    assert len(written) == 3
    for old in (0, 1):
        with pytest.raises(WriteRefused, match="old checkpoint"):
            each(OfStream(), old)
    assert len(written) == 3


def test_what_writes_a_batch_is_refused_where_there_is_no_stream(
    spark: Any, config: Config
) -> None:
    from sparkjobs.archive.ledger import into_database

    with pytest.raises(BadOption, match="is for foreachBatch"):
        into_database(config, lambda connection, table: None)(spark.range(1), 0)
