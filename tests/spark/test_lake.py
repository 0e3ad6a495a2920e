"""The lake holds each message once, whatever is killed, and gives back the log byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from monitoring.models import ArchivedDay, LakeFile, LakePosition
from sparkjobs.config import Config
from streams import send
from streams.log.sequencer import sequence
from streams.models import Message, Partition, Topic, UtcNow
from tests.spark.test_archive import BODIES, DAYS, history
from tests.spark.test_archive import run as archive

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

Rows = list[dict[str, Any]]


@pytest.fixture
def fill(spark: Any, config: Config) -> Callable[[], list[str]]:
    """Write what is there into the lake; return what the job says."""
    from sparkjobs.jobs.lake import start

    def run() -> list[str]:
        said: list[str] = []
        query = start(spark, config, said.append)
        query.awaitTermination()
        return said

    return run


@pytest.fixture
def lake(spark: Any, config: Config) -> Callable[..., Rows]:
    from sparkjobs.lake.reading import lake

    def read(**chosen: Any) -> Rows:
        return ordered(lake(spark, config, **chosen))

    return read


def ordered(frame: Any) -> Rows:
    keys = [("topic", "ascending"), ("partition_id", "ascending"), ("offset", "ascending")]
    from sparkjobs.source.schemas import MESSAGES

    rows: Rows = frame.select(*MESSAGES.names).toArrow().sort_by(keys).to_pylist()
    return rows


def parquet(config: Config) -> list[Path]:
    return sorted(Path(config.archive).glob("_lake/date=*/topic=*/*.parquet"))


def test_the_lake_equals_the_log_byte_for_byte_in_folders_of_day_and_topic(
    fill: Any, lake: Any, config: Config, read: Any
) -> None:
    history("flights")
    Partition.objects.create(topic=Topic.objects.get(), number=1)
    history("a:b-ü")
    history("orders", archive=False)
    send("flights", b"\x00delayed\xff", delay=timedelta(hours=1), headers={"a": "é"})
    open_at = Message.objects.get(offset=None)
    assert fill() == ["lake: 30 messages in 6 files"]
    Message.objects.filter(pk=open_at.pk).update(due_at=UtcNow(-timedelta(seconds=1)))
    sequence("default")
    assert fill() == ["lake: 1 messages in 1 files"]
    assert fill() == []
    expected = [row for row in ordered(read()) if row["topic"] != "orders"]
    assert lake() == expected
    assert len(expected) == 31
    assert {bytes(body) for body in (b"\x00\xff'\\%s", b"\x00delayed\xff")} <= {
        row["body"] for row in expected
    }
    assert {row["delayed"] for row in expected} == {True, False}
    assert len(lake(topics=["flights"], since=DAYS[1], until=DAYS[1])) == 5
    folders = {str(path.parent.relative_to(config.archive)) for path in parquet(config)}
    assert folders == {
        f"_lake/date={day}/topic={topic}" for day in DAYS for topic in ("flights", "a%3Ab-ü")
    }


@pytest.mark.exhaustive
def test_every_file_says_the_version_of_its_columns(fill: Any, lake: Any, config: Config) -> None:
    import pyarrow.parquet as pq

    from sparkjobs.errors import ArchiveDiffers
    from sparkjobs.storage import SCHEMA_VERSION, VERSION

    history(each=1)
    fill()
    for path in parquet(config):
        metadata = pq.read_schema(path).metadata
        spark_schema = metadata[b"org.apache.spark.sql.parquet.row.metadata"].decode()
        assert f'"{VERSION}":{SCHEMA_VERSION}' in spark_schema
    assert set(LakeFile.objects.values_list("version", flat=True)) == {SCHEMA_VERSION}
    LakeFile.objects.update(version=SCHEMA_VERSION + 1)
    with pytest.raises(ArchiveDiffers, match="not known here"):
        lake()


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", ["before the commit", "after the commit"])
def test_a_batch_that_is_killed_is_in_the_lake_once(
    fill: Any, lake: Any, read: Any, config: Config, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    batch: Any = import_module("sparkjobs.lake.batch")

    history()
    honest = batch.add

    def killed(*arguments: Any) -> bool:
        if place == "after the commit":
            assert honest(*arguments)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(Exception, match="killed"):
        patch.setattr(batch, "add", killed)
        fill()
    assert len(parquet(config)) == 3
    assert len(lake()) == (15 if place == "after the commit" else 0)
    fill()
    assert lake() == ordered(read())


@pytest.mark.exhaustive
def test_without_its_checkpoint_the_lake_is_read_again_and_written_once(
    fill: Any, lake: Any, read: Any, config: Config
) -> None:
    import shutil

    history()
    fill()
    shutil.rmtree(Path(config.archive) / "_lake" / "_checkpoint")
    send("flights", "one more")
    sequence("default")
    assert fill() == ["lake: 1 messages in 1 files"]
    assert lake() == ordered(read())
    assert len(lake()) == 16


@pytest.mark.exhaustive
def test_two_writers_at_a_time_write_each_message_once(
    fill: Any, lake: Any, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch: Any = import_module("sparkjobs.lake.batch")

    history()
    honest, calls = batch.stage, []

    def overtaken(messages: Any, config: Config) -> Any:
        written = honest(messages, config)
        calls.append(1)
        if len(calls) == 1:  # another process is as far, and commits first
            LakePosition.objects.create(partition_id=1, first_offset=0, next_offset=7)
        return written

    Partition.objects.update(id=1)
    Message.objects.update(partition_id=1)
    monkeypatch.setattr(batch, "stage", overtaken)
    assert fill() == ["lake: 8 messages in 2 files"]
    assert [row["offset"] for row in lake()] == [*range(7, 15)]
    assert len(calls) == 2


@pytest.mark.exhaustive
def test_small_files_become_one_and_no_reader_sees_a_half_of_it(
    fill: Any, lake: Any, read: Any, config: Config, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.lake import compaction, manifest, reading

    history(each=1)
    monkeypatch.setattr(compaction, "FILES", 3)
    for number in range(2):
        fill()
        send("flights", BODIES[number])
        sequence("default")
    expected = ordered(read())
    before = reading.lake(spark, config)  # planned, and not read yet
    honest, seen = manifest._insert, []

    def looked(*arguments: Any) -> None:
        seen.append(len(lake()))  # in the middle of the transaction
        honest(*arguments)

    if config.vendor != "sqlite":
        monkeypatch.setattr(manifest, "_insert", looked)
    assert f"lake: flights {DAYS[2]} has 2 files fewer" in fill()
    assert lake() == expected
    assert LakeFile.objects.filter(retired_at=None, day=DAYS[2]).count() == 1
    if config.vendor != "sqlite":
        assert seen == [4, 5]  # without the batch, then with it and with the old files
    # What left the lake stays for queries that had begun.
    assert before.count() == 4
    assert len(parquet(config)) == 6
    LakeFile.objects.exclude(retired_at=None).update(retired_at=UtcNow(-compaction.KEPT * 2))
    assert fill() == []  # no batch, no sweep
    assert compaction.sweep(spark, config) == 3
    assert len(parquet(config)) == LakeFile.objects.count() == 3
    assert lake() == expected


@pytest.mark.exhaustive
def test_files_of_a_killed_process_go_with_a_compaction(
    fill: Any, lake: Any, read: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.lake import compaction

    history(each=1)
    fill()
    (today,) = (path for path in parquet(config) if str(DAYS[2]) in str(path))
    today.with_name("lake-left-00000.c000.zstd.parquet").write_bytes(today.read_bytes())
    assert lake() == ordered(read())
    monkeypatch.setattr(compaction, "FILES", 2)
    send("flights", "one more")
    sequence("default")
    fill()
    assert not [path for path in parquet(config) if "left" in path.name]
    assert lake() == ordered(read())


@pytest.mark.exhaustive
def test_a_day_of_the_lake_is_archived_from_its_files_and_compared_with_the_database(
    fill: Any, lake: Any, read: Any, config: Config, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Any = import_module("sparkjobs.jobs.archive")

    history()
    fill()
    expected = ordered(read())
    written: list[str] = []
    honest = job.storage.write

    def noted(messages: Any, root: str, **options: Any) -> None:
        written.extend(messages.inputFiles())
        honest(messages, root, **options)

    monkeypatch.setattr(job.storage, "write", noted)
    said = archive(spark, config)
    assert said == [f"flights {day}: 5 messages archived" for day in DAYS[:2]]
    assert written
    assert all("/_lake/date=" in path for path in written)
    live = LakeFile.objects.filter(retired_at=None)
    assert list(live.values_list("day", flat=True)) == [DAYS[2]]
    assert lake() == expected  # from both, each message once
    assert Partition.objects.get().archived_offset == 10
    assert fill() == []


@pytest.mark.exhaustive
def test_a_day_that_the_lake_holds_wrongly_is_archived_from_the_database(
    fill: Any, lake: Any, read: Any, config: Config, spark: Any
) -> None:
    import pyarrow.parquet as pq

    history()
    fill()
    expected = ordered(read())
    (path,) = (path for path in parquet(config) if str(DAYS[0]) in str(path))
    table = pq.read_table(path, partitioning=None)
    path.with_name(f".{path.name}.crc").unlink()
    pq.write_table(table.slice(1), path)
    assert len(archive(spark, config)) == 2
    assert ArchivedDay.objects.get(day=DAYS[0]).messages == 5
    assert lake() == expected


@pytest.mark.exhaustive
def test_what_the_archive_has_taken_over_does_not_come_into_the_lake(
    fill: Any, lake: Any, read: Any, config: Config, spark: Any
) -> None:
    history()
    archive(spark, config)
    assert fill() == ["lake: 5 messages in 1 files"]
    assert lake() == ordered(read())
    assert LakePosition.objects.get().first_offset == 10


@pytest.mark.exhaustive
def test_messages_of_a_late_commit_are_in_the_lake(fill: Any, lake: Any, read: Any) -> None:
    history(each=1)
    send("flights", "open")  # its transaction is open, so it has no offset yet
    held = Message.objects.get(offset=None)
    Message.objects.filter(pk=held.pk).update(due_at=timezone.now() + timedelta(days=1))
    send("flights", "sent after it, in the log before it")
    sequence("default")
    fill()
    assert held.pk not in [row["message_id"] for row in lake()]
    Message.objects.filter(pk=held.pk).update(due_at=UtcNow(-timedelta(seconds=1)))
    sequence("default")
    fill()
    assert lake() == ordered(read())
    assert lake()[-1]["message_id"] == held.pk
    assert Counter(row["offset"] for row in lake()).most_common(1)[0][1] == 1
