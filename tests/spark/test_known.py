"""A stream tells EMS what its checkpoint has: never more, in a row that stays its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection as django_connection

from sparkjobs.config import Config
from sparkjobs.errors import BadOption, NotRegistered
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Access, Message, Partition, Reader, Topic, UtcNow
from streams.operate.topic_deletion import TopicDeletion
from streams.operate.topics import grow
from streams.retain.purge import Purge
from streams.retain.readers import ReaderState, readers
from tests.processes import Spawn

pytestmark = pytest.mark.django_db(transaction=True)


def sent(topic: str, messages: int, partition: int | None = None) -> None:
    send_many([Outgoing(topic, n, partition=partition) for n in range(messages)])
    sequence("default")


def positions(**of: Any) -> list[int]:
    row = Reader.objects.get(**of)
    return [row.positions[key] for key in sorted(row.positions, key=int)]


def purged() -> list[int]:
    """Purge whatever is a week old, which is all; return where each partition begins."""
    Topic.objects.update(retention_seconds=7 * 86400)
    Message.objects.update(sequenced_at=UtcNow(-timedelta(days=8)))
    Purge("default").run()
    return list(Partition.objects.order_by("number").values_list("first_offset", flat=True))


class Calls:
    """Calls a reader as Spark does; what it has committed is ``checkpoint``."""

    def __init__(self, config: Config, **options: str) -> None:
        self.options = {"config": config.path, **options}
        self.checkpoint: dict[str, Any] | None = None
        self.start()

    def start(self) -> None:
        from sparkjobs.source.datasource import EmsSource

        source = EmsSource(self.options)
        self.reader: Any = source.streamReader(source.schema())

    def look(self) -> dict[str, Any]:
        begin = self.checkpoint or self.reader.initialOffset()
        self.begin, self.end = begin, self.reader.latestOffset(begin, _all())
        return dict(self.end)

    def batch(self) -> None:
        self.look()
        self.reader.partitions(self.begin, self.end)
        self.checkpoint = json.loads(json.dumps(self.end))


def _all() -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


@pytest.fixture
def calls(config: Config) -> Callable[..., Calls]:
    return lambda **options: Calls(config, **options)


def test_a_row_has_what_is_committed_and_nothing_before_the_first_batch_is_planned(
    calls: Any,
) -> None:
    sent("a", 3)
    stream = calls(topic="a", reader="to the lake")
    stream.look()
    assert not Reader.objects.exists()  # the checkpoint has nothing yet, not even the id
    stream.batch()
    assert positions() == [0]
    sent("a", 2)
    stream.look()
    assert positions() == [3]
    row = Reader.objects.get()
    assert (row.name, row.checkpoint, row.protect) == ("to the lake", stream.end["reader"], False)
    assert row.topic.name == "a"


def test_a_restart_goes_on_in_its_row_and_other_checkpoints_have_their_own(calls: Any) -> None:
    sent("a", 3)
    stream, other = calls(topic="a", reader="x"), calls(topic="a", reader="x")
    stream.batch()
    other.batch()
    stream.start()
    stream.look()
    assert positions(checkpoint=stream.checkpoint["reader"]) == [3]
    assert positions(checkpoint=other.checkpoint["reader"]) == [0]
    stream.start()
    assert stream.look() == stream.checkpoint  # nothing new: Spark plans no batch
    assert Reader.objects.count() == 2


def test_a_batch_that_is_repeated_after_a_kill_is_not_counted(calls: Any) -> None:
    sent("a", 3)
    stream = calls(topic="a", protect="true")
    stream.batch()
    stream.look()  # planned, and not committed
    end = stream.end
    Reader.objects.all().delete()
    stream.start()
    begin = stream.reader.initialOffset()  # the first batch again: Spark asks again
    stream.reader.partitions(begin, end)
    assert positions(checkpoint=end["reader"]) == [0]


def test_a_checkpoint_of_before_gets_an_id(calls: Any) -> None:
    sent("a", 3)
    stream = calls(topic="a")
    stream.checkpoint = {str(Partition.objects.get().pk): 2}
    stream.batch()
    stream.look()
    assert positions(checkpoint=stream.checkpoint["reader"]) == [3]


def test_what_stands_still_is_written_every_ten_seconds_only(
    calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.source import known

    written: list[Any] = []
    now = [1000.0]
    monkeypatch.setattr(known, "write", lambda *args: written.append(args[-1]))
    monkeypatch.setattr("sparkjobs.source.known.time.monotonic", lambda: now[0])
    sent("a", 3)
    stream = calls(topic="a")
    stream.batch()
    for seconds in (1, 5, 4.9, 0.2):
        now[0] += seconds
        stream.look()
    assert [sum(of[0].values()) for of in map(list, map(dict.values, written))] == [0, 3, 3]


def test_each_topic_has_a_row_also_one_of_which_nothing_was_read(calls: Any) -> None:
    sent("a", 3)
    stream = calls(protect="true")
    stream.batch()
    sent("b", 4)
    stream.look()
    assert positions(topic__name="a") == [3]
    assert positions(topic__name="b") == []
    assert sorted(purged()) == [0, 3]


def test_partitions_that_are_added_later_are_kept_until_they_are_read(calls: Any) -> None:
    sent("a", 3)
    stream = calls(topic="a", protect="true")
    stream.batch()
    grow(Topic.objects.get(), 2, "default")
    sent("a", 5, partition=1)
    stream.look()
    assert purged() == [3, 0]
    stream.batch()
    stream.look()
    assert positions() == [3, 5]
    assert purged() == [3, 5]


def test_a_topic_that_is_made_anew_has_a_new_row(calls: Any) -> None:
    sent("a", 3)
    stream = calls(topic="a", failOnDataLoss="false", protect="true")
    stream.batch()
    Topic.objects.update(access=Access.DENIED)
    deletion = TopicDeletion(Topic.objects.get(), "default", force=True)
    deletion.close()
    deletion.finish()
    sent("a", 2)
    stream.batch()
    stream.look()
    assert positions() == [2]
    assert Reader._base_manager.count() == 1


def test_where_it_was_is_in_no_other_topic(calls: Any) -> None:
    sent("a", 3)
    sent("b", 3)
    stream = calls(topic="b")
    stream.batch()
    stream.look()
    assert Reader.objects.get().topic.name == "b"


@pytest.fixture
def without_table() -> Any:
    """No stream can say where it is."""
    with django_connection.cursor() as cursor:
        cursor.execute("ALTER TABLE `ems_reader` RENAME TO `ems_gone`")
        yield
        cursor.execute("ALTER TABLE `ems_gone` RENAME TO `ems_reader`")


def test_a_stream_that_cannot_say_where_it_is_goes_on_and_says_so_once(
    calls: Any, without_table: None, capfd: pytest.CaptureFixture[str]
) -> None:
    sent("a", 3)
    stream = calls(topic="a")
    stream.batch()
    stream.batch()
    stream.look()
    assert capfd.readouterr().err.count("EMS does not know this stream") == 1


def test_a_stream_that_protects_and_cannot_say_where_it_is_ends(
    calls: Any, without_table: None
) -> None:
    sent("a", 3)
    stream = calls(topic="a", protect="true")
    stream.look()
    with pytest.raises(NotRegistered, match="protect=true needs INSERT and UPDATE"):
        stream.reader.partitions(stream.begin, stream.end)


def test_the_rate_is_of_the_last_minute(calls: Any) -> None:
    sent("a", 6)
    stream = calls(topic="a")
    stream.batch()
    early = UtcNow(-timedelta(seconds=90))
    Reader.objects.update(before_at=early, seen_at=UtcNow(-timedelta(seconds=10)), total=2)
    stream.look()
    row = Reader.objects.get()
    assert (row.before_total, row.total) == (2, 6)  # it had been seen for more than a minute
    assert row.rate == pytest.approx(0.4, abs=0.05)
    Reader.objects.update(total=5)
    sent("a", 6)
    stream.batch()
    stream.look()
    assert Reader.objects.get().before_total == 2


def test_they_are_options_of_a_stream(config: Config) -> None:
    from sparkjobs.source.datasource import EmsSource

    for wrong in ({"reader": "x"}, {"protect": "true"}):
        source = EmsSource({"config": config.path, "topic": "a", **wrong})
        with pytest.raises(BadOption, match="are for a stream"):
            source.reader(source.schema())
        assigned = EmsSource({"config": config.path, "assign": '{"a": [0]}', **wrong})
        with pytest.raises(BadOption, match="not for assign"):
            assigned.streamReader(assigned.schema())
    with pytest.raises(BadOption, match="at most 127"):
        EmsSource({"config": config.path, "reader": "x" * 128}).schema()
    with pytest.raises(BadOption, match="protect must be"):
        EmsSource({"config": config.path, "protect": "yes"}).schema()


# -- with Spark --------------------------------------------------------------------------------


def query(frame: Any, checkpoint: Path) -> None:
    writer = frame.writeStream.foreachBatch(lambda batch, number: batch.count())
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


@pytest.mark.exhaustive
def test_spark_keeps_the_id_and_says_the_end_of_the_last_batch(
    spark: Any, config: Config, tmp_path: Path
) -> None:
    sent("a", 5)

    def load() -> Any:
        options = {"config": config.path, "topic": "a", "reader": "x", "protect": True}
        return spark.readStream.format("ems").options(maxMessagesPerTrigger=2, **options).load()

    frame = load()
    query(frame, tmp_path / "one")
    query(frame, tmp_path / "two")  # two queries of one DataFrame, and of one name
    assert [sum(row.positions.values()) for row in Reader.objects.all()] == [5, 5]
    sent("a", 1)
    query(load(), tmp_path / "one")
    rows = Reader.objects.order_by("total")
    assert [(row.total, row.name, row.protect) for row in rows] == [(5, "x", True), (6, "x", True)]
    assert purged() == [5]


@pytest.mark.exhaustive
def test_a_stream_that_begins_at_the_end_is_known_after_its_empty_batch(
    spark: Any, config: Config, tmp_path: Path
) -> None:
    sent("a", 5)
    frame = spark.readStream.format("ems").options(
        config=config.path, topic="a", startingOffsets="latest"
    )
    query(frame.load(), tmp_path / "one")
    assert positions() == [5]
    (one,) = readers("default")
    assert one.state is ReaderState.AT_END


STREAM = """
import os, sys
os.environ["EMS_SPARK_MASTER"] = "local[1]"
os.environ["TZ"] = "UTC"
path, checkpoint, at = sys.argv[1:]
os.environ["EMS_TEST_KILL_AT"] = f"{os.getpgid(0)} {at}"
from sparkjobs import session as sessions
from tests.spark.killing import KillingSource
from tests.spark.small import SMALL

sessions.LOCAL.update(SMALL)
spark = sessions.session("stream")
spark.dataSource.register(KillingSource)
options = {"config": path, "topic": "a", "maxMessagesPerTrigger": 10, "protect": "true"}
stream = spark.readStream.format("ems_killing").options(**options).load()
writer = stream.writeStream.foreachBatch(lambda frame, batch: frame.count())
writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
writer.start().awaitTermination()
"""


@pytest.mark.mysql
@pytest.mark.exhaustive
@pytest.mark.timeout(500)
def test_after_a_kill_between_the_commit_and_its_row_the_row_is_behind(
    spawn: Spawn, option_file: Path, tmp_path: Path
) -> None:
    sent("a", 45)
    checkpoint = tmp_path / "checkpoint"
    child = spawn(STREAM, option_file, checkpoint, 20)
    assert child.wait(200) == -signal.SIGKILL, child.text()
    assert (checkpoint / "commits" / "1").exists()  # offsets up to 20 are committed
    assert positions() == [10]
    assert purged() == [10]
    spawn(STREAM, option_file, checkpoint, 1000).succeed(200)
    assert positions() == [45]
    assert purged() == [45]
