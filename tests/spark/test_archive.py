"""Closed days go to the archive, verified, and come back byte for byte."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, time, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from monitoring.models import ArchivedDay, LedgerEntry, ReplayedMessage
from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import ArchiveDiffers, BadConfig, BadOption, Busy, NotArchived
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Access, Message, Partition, Rewind, Topic
from streams.rules.names import MAX_NAME

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

TODAY = datetime.now(UTC).date()
DAYS = [TODAY - timedelta(days=back) for back in (2, 1, 0)]

BODIES = [{"n": [1, "né"]}, "text\r\n\x7f", b"\x00\xff'\\%s", "", {"big": "x" * 9000}]


def history(
    topic: str = "flights", *, archive: bool = True, each: int = 5, using: str = "default"
) -> Partition:
    """Messages of three days, the last of them today."""
    Topic.objects.using(using).create(name=topic, archive=archive)
    outgoing = [
        Outgoing(
            topic,
            BODIES[n % 5],
            key=None if n % 3 else f"k{n}",
            tag="" if n % 2 else "né-w",
            headers=None if n % 4 else {"b": "1", "a": "é"},
        )
        for n in range(each * len(DAYS))
    ]
    send_many(outgoing, using=using)
    sequence(using)
    for message in Message.objects.using(using).filter(partition__topic__name=topic):
        assert message.offset is not None
        noon = datetime.combine(DAYS[message.offset // each], time(12), tzinfo=UTC)
        at = noon + timedelta(microseconds=message.offset)
        Message.objects.using(using).filter(pk=message.pk).update(sequenced_at=at)
    return Partition.objects.using(using).get(topic__name=topic)


def run(spark: Any, config: Config, until: date | None = None) -> list[str]:
    from sparkjobs.jobs.archive import archive

    return list(archive(spark, config, until))


def replay(
    spark: Any,
    config: Config,
    topic: str = "flights",
    *,
    to: str | None = None,
    name: str | None = None,
) -> str:
    from sparkjobs.jobs.replay import replay

    return replay(spark, config, topic, DAYS[0], DAYS[1], to or topic, name)


def content(**where: Any) -> list[tuple[Any, ...]]:
    rows = Message.objects.filter(**where).order_by("offset", "id")
    values = rows.values_list("body", "body_type", "key", "tag", "size", "headers")
    return [(bytes(body), *rest) for body, *rest in values]


@pytest.mark.exhaustive
def test_closed_days_are_archived_compared_recorded_and_only_then_free_to_be_purged(
    spark: Any, config: Config
) -> None:
    partition, other = history(), history("orders", archive=False)
    said = run(spark, config)
    assert said == [f"flights {day}: 5 messages archived" for day in DAYS[:2]]
    rows = list(ArchivedDay.objects.order_by("day"))
    assert [(row.first_offset, row.end_offset, row.messages) for row in rows] == [
        *((0, 5, 5), (5, 10, 5))
    ]
    assert {row.topic for row in rows} == {"flights"}
    partition.refresh_from_db()
    other.refresh_from_db()
    assert (partition.archived_offset, other.archived_offset) == (10, 0)
    files = list(Path(config.archive).glob("date=*/topic=flights/*.zstd.parquet"))
    assert {file.parent.parent.name for file in files} == {f"date={day}" for day in DAYS[:2]}
    assert run(spark, config) == ["nothing to archive"]


@pytest.mark.exhaustive
def test_an_archived_message_has_every_column_that_it_had(
    spark: Any, config: Config, read: Any
) -> None:
    from sparkjobs.archive.manifest import in_archive
    from sparkjobs.source.schemas import MESSAGES

    history()
    whole = read(topic="flights", end=10).select(*MESSAGES.names)
    expected = whole.toArrow().sort_by("offset").to_pylist()
    run(spark, config)
    found = in_archive(spark, config, ["flights"], DAYS).toArrow().sort_by("offset").to_pylist()
    assert found == expected
    assert len(found) == 10


def test_a_day_that_is_not_closed_is_refused(spark: Any, config: Config) -> None:
    history()
    with pytest.raises(BadOption, match="not closed"):
        run(spark, config, TODAY)
    assert run(spark, config, DAYS[0]) == [f"flights {DAYS[0]}: 5 messages archived"]


@pytest.mark.exhaustive
def test_a_killed_run_leaves_files_that_the_next_one_replaces(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive: Any = import_module("sparkjobs.jobs.archive")

    partition = history()

    def killed(*arguments: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(archive, "fingerprints", killed)  # after the files, before the comparison
        run(spark, config)
    assert list(Path(config.archive).rglob("*.parquet"))
    partition.refresh_from_db()
    assert (partition.archived_offset, ArchivedDay.objects.count()) == (0, 0)
    run(spark, config)
    assert ArchivedDay.objects.count() == 2
    files = Path(config.archive).glob(f"date={DAYS[0]}/topic=flights/*.parquet")
    assert spark.read.parquet(*map(str, files)).count() == 5


def test_files_that_differ_are_not_recorded(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    archive: Any = import_module("sparkjobs.jobs.archive")

    partition = history()
    honest = archive.in_archive

    def wrong(*arguments: Any) -> Any:
        changed = F.when(F.col("offset") == 3, F.lit("k")).otherwise(F.col("key"))
        return honest(*arguments).withColumn("key", changed)

    monkeypatch.setattr(archive, "in_archive", wrong)
    with pytest.raises(NotArchived, match=f"{DAYS[0]}: the database has"):
        run(spark, config)
    partition.refresh_from_db()
    assert (partition.archived_offset, ArchivedDay.objects.count()) == (0, 0)


@pytest.mark.exhaustive
def test_the_database_is_read_again_only_if_what_was_written_is_not_in_the_files(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive: Any = import_module("sparkjobs.jobs.archive")

    history()
    honest, observed = archive.from_database, archive.observed
    reads: list[int] = []

    def counted(*arguments: Any) -> Any:
        reads.append(1)
        return honest(*arguments)

    monkeypatch.setattr(archive, "from_database", counted)
    run(spark, config, DAYS[0])
    assert len(reads) == 1

    def twice(frame: Any) -> Any:  # as a task counts that ran twice
        given, seen = observed(frame)
        return given, lambda: archive.total([seen(), seen()])

    monkeypatch.setattr(archive, "observed", twice)
    run(spark, config)
    assert len(reads) == 3
    assert ArchivedDay.objects.count() == 2


@pytest.mark.exhaustive
def test_a_topic_that_cannot_be_archived_leaves_the_others_and_fails_the_run(
    spark: Any, config: Config
) -> None:
    bad = history("bad")
    for topic in ("cargo", "flights"):
        history(topic)
    # A topic of this name, deleted since, has this day in the archive.
    ArchivedDay.objects.create(
        partition_id=bad.pk + 100,
        day=DAYS[0],
        topic="bad",
        number=0,
        first_offset=0,
        end_offset=1,
        messages=1,
        bytes=1,
        hash="1",
        path="elsewhere",
    )
    said = []
    with pytest.raises(NotArchived, match=f"bad {DAYS[0]}"):
        said.extend(run(spark, config))
    found = Partition.objects.values_list("topic__name", "archived_offset")
    assert dict(found) == {"bad": 0, "cargo": 10, "flights": 10}
    found_days = ArchivedDay.objects.exclude(topic="bad").values_list("topic", "day")
    assert set(found_days) == {(topic, day) for topic in ("cargo", "flights") for day in DAYS[:2]}
    ArchivedDay.objects.filter(topic="bad").delete()
    assert run(spark, config) == [f"bad {day}: 5 messages archived" for day in DAYS[:2]]


@pytest.mark.exhaustive
def test_what_a_step_lists_does_not_grow_with_the_archive(spark: Any, config: Config) -> None:
    from sparkjobs.archive.manifest import fingerprints, in_archive

    history()
    run(spark, config)
    counted = spark._jvm.org.apache.spark.metrics.source.HiveCatalogMetrics

    def listed() -> int:
        before = counted.METRIC_FILES_DISCOVERED().getCount()
        assert len(fingerprints(in_archive(spark, config, ["flights"], [DAYS[0]]))) == 1
        return int(counted.METRIC_FILES_DISCOVERED().getCount() - before)

    alone = listed()
    folder = Path(config.archive) / f"date={DAYS[1]}"
    for day in range(30):
        shutil.copytree(folder, folder.parent / f"date=2020-01-{day + 1:02}")
    assert listed() == alone > 0


def test_of_two_runs_at_a_time_one_is_refused(spark: Any, config: Config) -> None:
    from sparkjobs.lock import alone

    history()
    with alone(config, "archive"), pytest.raises(Busy, match="another run of archive"):
        run(spark, config)
    assert not ArchivedDay.objects.exists()


def test_archive_then_purge_then_replay_gives_back_every_message(
    spark: Any, config: Config
) -> None:
    from streams.retain.purge import Purge

    partition = history()
    expected = content(offset__lt=10)
    Topic.objects.update(retention_count=2)
    Purge("default").run()
    assert Message.objects.count() == 15  # nothing is in the archive yet
    run(spark, config)
    Purge("default").run()
    partition.refresh_from_db()
    assert partition.first_offset == 10  # today is not in the archive
    assert not Message.objects.filter(offset__lt=10).exists()
    assert "10 messages sent" in replay(spark, config)
    assert "was done before" in replay(spark, config)
    assert content(offset=None) == expected
    sequence("default")
    assert content(offset__gte=15) == expected
    producers = Message.objects.filter(offset__gte=15).order_by("offset")
    assert [m.producer for m in producers] == [f"replay@flights/0@{n}" for n in range(10)]
    assert ReplayedMessage.objects.count() == 0


@pytest.mark.exhaustive
def test_a_replay_is_done_once_unless_it_is_given_another_name(spark: Any, config: Config) -> None:
    history()
    run(spark, config)
    replay(spark, config)
    assert "was done before" in replay(spark, config)
    assert Message.objects.filter(offset=None).count() == 10
    assert "10 messages sent" in replay(spark, config, name="again")
    assert Message.objects.filter(offset=None).count() == 20
    assert LedgerEntry.objects.count() == 2


@pytest.mark.exhaustive
def test_a_replay_that_is_killed_goes_on_where_it_was_and_sends_nothing_twice(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging: Any = import_module("sparkjobs.archive.staging")
    job: Any = import_module("sparkjobs.jobs.replay")

    history()
    run(spark, config)
    expected = content(offset__lt=10)
    monkeypatch.setattr(staging, "PIECE_ROWS", 3)
    honest, calls = staging.delete, []

    def killed(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt  # the second piece is in the inbox, and not committed
        honest(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(staging, "delete", killed)
        replay(spark, config)
    assert content(offset=None) == expected[:3]
    assert ReplayedMessage.objects.count() == 7
    monkeypatch.setattr(job, "in_archive", None)  # what is left is in the database
    assert "7 messages sent, the rest of a replay that had begun" in replay(spark, config)
    assert content(offset=None) == expected
    assert [entry.batch for entry in LedgerEntry.objects.all()] == [0]
    assert "was done before" in replay(spark, config)


@pytest.mark.exhaustive
def test_a_name_is_that_of_one_replay_and_another_topic_is_sent_by_its_own(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the other one was killed and its messages still wait to be sent."""
    job: Any = import_module("sparkjobs.jobs.replay")

    history()
    history("orders")
    run(spark, config)

    def killed(*arguments: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(job, "send", killed)
        replay(spark, config, name="again")
    assert ReplayedMessage.objects.count() == 10
    assert replay(spark, config, "orders", name="again").endswith("10 messages sent")
    sent = Message.objects.filter(offset=None)
    assert {one.partition.topic.name for one in sent} == {"orders"}
    assert {one.producer[:14] for one in sent} == {"replay@orders/"}
    rest = replay(spark, config, name="again")
    assert "10 messages sent, the rest of a replay that had begun" in rest
    assert "10 messages sent" in replay(spark, config, to="orders", name="again")
    for topic in ("flights", "orders"):
        assert "was done before" in replay(spark, config, topic, name="again")


@pytest.mark.any_database
def test_replays_to_targets_of_one_long_beginning_are_two(config: Config) -> None:
    from sparkjobs.jobs.replay import ReplayPlan

    long = "x" * (MAX_NAME - 1)
    plans = [
        ReplayPlan.of(config, long, DAYS[0], DAYS[1], long + end, name)
        for end in "ab"
        for name in (None, "again", "again" * 40)
    ]
    assert len({one.entry for one in plans}) == len({one.mark for one in plans}) == len(plans)
    assert max(len(one.entry) for one in plans) <= 190
    assert all(one.entry.startswith("replay ") for one in plans)


@pytest.mark.exhaustive
def test_a_transaction_of_a_replay_is_bounded_in_rows_and_bytes(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging: Any = import_module("sparkjobs.archive.staging")

    history()
    run(spark, config)
    sizes = list(Message.objects.filter(offset__lt=10).order_by("offset").values_list("size"))
    assert max(sizes)[0] > 3000
    monkeypatch.setattr(staging, "PIECE_BYTES", 3010)
    monkeypatch.setattr(staging, "PIECE_ROWS", 4)
    honest, sent = staging.execute, []

    def noted(connection: Any, statement: str, *arguments: Any) -> int:
        rows = int(honest(connection, statement, *arguments))
        if statement.startswith("INSERT INTO `ems_msg`"):
            sent.append(rows)
        return rows

    monkeypatch.setattr(staging, "execute", noted)
    replay(spark, config)
    assert sum(sent) == 10
    assert max(sent) == 4
    assert len(sent) > 3


@pytest.mark.exhaustive
def test_a_replay_that_was_killed_while_it_collected_sends_nothing_and_then_all(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: Any = import_module("sparkjobs.jobs.replay")

    history()
    run(spark, config)
    honest = job.stage

    def killed(*arguments: Any) -> int:
        honest(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(job, "stage", killed)
        replay(spark, config)
    assert (Message.objects.filter(offset=None).count(), LedgerEntry.objects.count()) == (0, 0)
    assert ReplayedMessage.objects.count() == 10
    assert "10 messages sent" in replay(spark, config)
    assert Message.objects.filter(offset=None).count() == 10


@pytest.mark.exhaustive
def test_messages_with_a_key_go_where_live_ones_with_this_key_go(
    spark: Any, config: Config
) -> None:
    history()
    run(spark, config)
    target = Topic.objects.create(name="copy")
    for number in (1, 2):
        Partition.objects.create(topic=target, number=number)
    replay(spark, config, to="copy")
    from streams.rules.partition import partition_of

    rows = Message.objects.filter(partition__topic=target).select_related("partition")
    keyed = [message for message in rows if message.key]
    assert len(keyed) == 4
    for message in keyed:
        assert message.partition.number == partition_of(str(message.key), 3)


@pytest.mark.exhaustive
def test_a_replay_of_what_is_not_there_or_may_not_be_sent_says_so(
    spark: Any, config: Config
) -> None:
    history()
    with pytest.raises(BadOption, match="is archived to offset 0, not to 10"):
        replay(spark, config)
    run(spark, config)
    with pytest.raises(BadOption, match="no topic 'nowhere' that may be written to"):
        replay(spark, config, to="nowhere")
    Topic.objects.update(access=Access.READ_ONLY)
    with pytest.raises(BadOption, match="may be written to"):
        replay(spark, config)
    assert Message.objects.filter(offset=None).count() == 0


@pytest.mark.exhaustive
def test_files_that_have_changed_since_are_not_replayed(spark: Any, config: Config) -> None:
    history()
    run(spark, config)
    for file in Path(config.archive).glob(f"date={DAYS[1]}/topic=flights/*.parquet"):
        file.unlink()
    with pytest.raises(ArchiveDiffers, match=f"flights {DAYS[1]}"):
        replay(spark, config)
    assert Message.objects.filter(offset=None).count() == 0


def test_without_a_folder_for_it_there_is_no_archive(config: Config, tmp_path: Path) -> None:
    from sparkjobs.archive.manifest import folder

    with pytest.raises(BadConfig, match=r"EMS\['ARCHIVE'\] of Django's settings"):
        folder(Config(config.path, config.vendor, config.database))


def test_a_replay_of_what_is_not_archived_starts_no_spark(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs.__main__ import main
    from sparkjobs.jobs import replay as job

    history()
    monkeypatch.setattr(job, "session", None)  # nobody calls it
    words = ["--config", config.path, "replay", "flights", "2026-01-01", "2026-01-02"]
    assert main(words) == 1
    assert "nothing of flights from 2026-01-01 to 2026-01-02" in capsys.readouterr().err


def test_offsets_that_are_missing_in_the_log_are_said(spark: Any, config: Config) -> None:
    history()
    Message.objects.filter(offset__in=(0, 7)).delete()
    said = run(spark, config)
    assert said[0] == (
        f"flights {DAYS[0]}: 4 messages archived, 1 offsets are not in the log: run reconcile"
    )
    assert ArchivedDay.objects.get(day=DAYS[0]).messages == 4


@pytest.mark.exhaustive
def test_what_a_rewound_log_leaves_out_is_not_missing(spark: Any, config: Config) -> None:
    history()
    Message.objects.filter(offset=0).delete()
    partition = Message.objects.filter(offset=7).values_list("partition", flat=True)
    Rewind.objects.create(
        partition_id=partition[0], epoch=1, first_offset=0, known_offset=1, next_offset=1
    )
    assert run(spark, config)[0] == f"flights {DAYS[0]}: 4 messages archived"


@pytest.mark.exhaustive
def test_topics_are_found_by_their_exact_names_in_the_archive(spark: Any, config: Config) -> None:
    from sparkjobs.archive.manifest import in_archive

    for name in ("007", "a:b-ü", "Flights"):
        history(name, each=1)
    run(spark, config, DAYS[0])
    with connected(config):
        for name in ("007", "a:b-ü", "Flights"):
            rows = in_archive(spark, config, [name], [DAYS[0]]).toArrow().to_pylist()
            assert [(row["topic"], row["offset"]) for row in rows] == [(name, 0)]
