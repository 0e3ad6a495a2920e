"""The sink "ems" sends all rows of a write or of a batch once, or none of them."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monitoring.models import LedgerEntry, StagedMessage
from sparkjobs.config import Config
from sparkjobs.errors import BadOption, BadRow, OutcomeUnknown, WriteRefused
from streams import consumer, send
from streams.log.sequencer import sequence
from streams.models import DedupKey, Message, SystemConfig, Topic
from streams.models.fields import UtcNow
from streams.operate.topics import grow
from streams.retain.purge import Purge
from streams.rules.partition import partition_of
from streams.testing import advance, drain
from tests.processes import Spawn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def bodies(topic: str) -> list[str]:
    rows = Message.objects.filter(partition__topic__name=topic).order_by("pk")
    return [bytes(row.body).decode() for row in rows]


def batch(*texts: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": list(texts), **columns})


Stage = Callable[..., Any]


@pytest.fixture
def stage(config: Config) -> Stage:
    """Do what one attempt of a task does: ``stage("a", "b")`` returns what Spark hands on."""
    from sparkjobs.sink import staging
    from sparkjobs.sink.options import SinkOptions

    def run(*texts: str, name: str = "sink q", task: int = 0, **columns: list[Any]) -> Any:
        options = SinkOptions(topic="orders")
        return staging.stage([batch(*texts, **columns)], config, options, name, task)

    return run


@pytest.fixture
def commit(config: Config) -> Callable[..., int]:
    from sparkjobs.sink.commit import commit

    def run(*parts: Any, number: int | None = 0, window: timedelta | None = None) -> int:
        return commit(config, "sink q", number, parts, window)

    return run


@pytest.fixture(autouse=True)
def topic() -> Topic:
    return Topic.objects.create(name="orders")


def test_only_what_the_counted_attempts_have_staged_is_sent_and_in_their_order(
    stage: Stage, commit: Callable[..., int]
) -> None:
    stage("a0", "a1")  # a task that was repeated, or whose speculative twin was quicker
    second, first = stage("b0", task=1), stage("a1", "a0")
    assert not Message.objects.exists()  # nothing is sent before all is there
    assert commit(first, second) == 3
    assert bodies("orders") == ["a1", "a0", "b0"]
    assert not StagedMessage.objects.exists()


def test_a_batch_that_is_repeated_after_its_commit_sends_nothing(
    stage: Stage, commit: Callable[..., int]
) -> None:
    assert commit(stage("a")) == 1
    assert commit(stage("a")) == 0  # the driver died before Spark noted the commit
    assert commit(stage("b"), number=1) == 1
    assert bodies("orders") == ["a", "b"]
    assert LedgerEntry.objects.filter(name="sink q").count() == 2
    assert not StagedMessage.objects.exists()


def test_a_checkpoint_that_is_older_than_what_was_sent_is_refused(
    stage: Stage, commit: Callable[..., int]
) -> None:
    for number in range(5):
        commit(stage(str(number)), number=number)
    # The ledger still has batch 3, and not batch 1.
    for number in (1, 3):
        said = f"batch 4 of sink q was sent, so batch {number} is of an old"
        with pytest.raises(WriteRefused, match=said):
            commit(stage("other rows"), number=number)
    assert commit(stage("4"), number=4) == 0
    assert len(bodies("orders")) == 5


KILLED = """
import os, sys
from sparkjobs.config import Config
from sparkjobs.sink import commit as module
from sparkjobs.sink.options import SinkOptions
from sparkjobs.sink.staging import stage
import pyarrow as pa

path, when = sys.argv[1:]
config = Config.load(path)
part = stage([pa.RecordBatch.from_pydict({"body": ["a", "b"]})], config,
             SinkOptions(topic="orders"), "sink q", 0)
if when == "before the commit":
    os.kill(os.getpid(), 9)
if when == "inside the commit":
    module._check_unchanged = lambda *given: os.kill(os.getpid(), 9)
module.commit(config, "sink q", 0, [part], None)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("when", "there"),
    [
        pytest.param("before the commit", 0, marks=pytest.mark.exhaustive),
        *(("inside the commit", 0), ("after the commit", 2)),
    ],
)
def test_a_driver_that_is_killed_loses_nothing_and_doubles_nothing(
    when: str,
    there: int,
    spawn: Spawn,
    option_file: Path,
    stage: Stage,
    commit: Callable[..., int],
) -> None:
    child = spawn(KILLED, option_file, when)
    assert child.wait(60) == -signal.SIGKILL, child.text()
    assert Message.objects.count() == there
    assert commit(stage("a", "b")) == 2 - there  # Spark repeats the batch
    assert bodies("orders") == ["a", "b"]
    assert not StagedMessage.objects.exists()


@pytest.mark.parametrize("number", [None, 0])
@pytest.mark.parametrize("done", [True, False])
def test_an_error_of_the_commit_is_looked_into(
    done: bool,
    number: int | None,
    stage: Stage,
    commit: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sparkjobs.database import connected, transaction
    from sparkjobs.sink import commit as module

    @contextmanager
    def lost(connection: Any) -> Iterator[None]:
        with suppress(KeyError), transaction(connection):
            yield
            if not done:
                raise KeyError
        raise ConnectionError("lost")

    part = stage("a", "b")
    monkeypatch.setattr(module, "transaction", lost)
    if not done:
        with pytest.raises(ConnectionError):
            commit(part, number=number)
        assert not Message.objects.exists()
        return
    assert commit(part, number=number) == 2
    assert bodies("orders") == ["a", "b"]
    assert LedgerEntry.objects.count() == (number is not None)
    assert not StagedMessage.objects.exists()
    calls = itertools.count()

    def once(config: Config) -> Any:
        if next(calls):
            raise ConnectionError("no answer")
        return connected(config)

    monkeypatch.setattr(module, "connected", once)
    with pytest.raises(OutcomeUnknown, match="all messages are sent, or none"):
        commit(stage("c"), number=number and 1)


@pytest.mark.mysql
def test_a_lost_reply_to_the_commit_is_no_failure(
    proxied: Any, config: Config, stage: Stage, commit: Callable[..., int]
) -> None:
    part = stage("a", "b")
    proxied.lose_reply_to(b"COMMIT")
    assert commit(part, number=None) == 2
    assert proxied.fired == [b"COMMIT"]
    assert bodies("orders") == ["a", "b"]
    # What could not be deleted on the lost connection the purge deletes.
    LedgerEntry.objects.update(done_at=UtcNow(-timedelta(days=8)))
    StagedMessage.objects.update(staged_at=UtcNow(-timedelta(days=8)))
    Purge("default").delete_old_rows()
    assert not LedgerEntry.objects.exists()
    assert not StagedMessage.objects.exists()


def test_a_write_that_is_sent_does_not_fail_by_tidying_up(
    stage: Stage,
    commit: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from sparkjobs.sink import commit as module

    def fails(*given: Any) -> None:
        raise ConnectionError("lost")

    monkeypatch.setattr(module, "forget", fails)
    assert commit(stage("a"), number=None) == 1
    assert "ems: sink q is sent; its staged rows stay until the nightly purge: lost" in (
        capfd.readouterr().err
    )
    assert Purge("default").delete_old_rows()["staged"] == 0
    LedgerEntry.objects.update(done_at=UtcNow(-timedelta(days=8)))
    assert Purge("default").delete_old_rows()["staged"] == 1


@pytest.mark.mysql
def test_a_host_that_has_vanished_does_not_keep_its_locks(
    stage: Stage, commit: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.database import fetch
    from sparkjobs.ledger import take_newest
    from sparkjobs.sink import commit as module

    seen = []

    def noted(connection: Any, *given: Any) -> bool:
        seen.append(fetch(connection, "SELECT @@SESSION.wait_timeout"))
        return take_newest(connection, *given)

    monkeypatch.setattr(module, "take_newest", noted)
    commit(stage("a"))
    assert seen == [[(120,)]]


def test_what_was_staged_and_is_gone_refuses_the_write(
    stage: Stage, commit: Callable[..., int]
) -> None:
    part = stage("a", "b")
    StagedMessage.objects.first().delete()  # type: ignore[union-attr]
    with pytest.raises(WriteRefused, match="2 rows were staged and 1 are there"):
        commit(part)
    assert not Message.objects.exists()
    assert not LedgerEntry.objects.exists()


@pytest.mark.parametrize("change", ["deny", "grow", "recreate"])
def test_a_topic_that_is_changed_during_the_write_refuses_it(
    change: str, topic: Topic, stage: Stage, commit: Callable[..., int]
) -> None:
    part = stage("a")
    if change == "deny":
        Topic.objects.update(access="denied")
    elif change == "grow":
        grow(topic, 2, "default")
    else:
        topic.partitions.all().delete()
        topic.delete()
        Topic.objects.create(name="orders")
    with pytest.raises(WriteRefused):
        commit(part)
    assert not Message.objects.exists()


def test_of_rows_with_one_dedup_key_the_first_is_sent_in_the_window(
    stage: Stage, commit: Callable[..., int]
) -> None:
    send("orders", "sent before", dedup_key="1")
    part = stage("1", "2", "2 again", "none", dedup_key=["1", "2", "2", None])
    assert commit(part) == 2
    assert bodies("orders") == ["sent before", "2", "none"]
    # A send knows the keys of the write, with the message and for as long as its own.
    result = send("orders", "2", dedup_key="2")
    assert result.duplicate
    assert result.message_id == Message.objects.get(body=b"2").pk
    window = timedelta(seconds=600)  # dedupWindowSeconds
    assert not DedupKey.objects.filter(expires_at__gt=UtcNow(window)).exists()
    DedupKey.objects.update(expires_at=UtcNow())
    assert not send("orders", "2", dedup_key="2").duplicate


def test_a_window_of_its_own_is_kept(stage: Stage, commit: Callable[..., int]) -> None:
    commit(stage("1", dedup_key=["1"]), window=timedelta(hours=2))
    left = DedupKey.objects.filter(
        expires_at__gt=UtcNow(timedelta(minutes=119)), expires_at__lte=UtcNow(timedelta(hours=2))
    )
    assert left.count() == 1


def test_many_keys_in_many_statements(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, commit: Callable[..., int]
) -> None:
    from sparkjobs import database
    from sparkjobs.sink import commit as moving
    from sparkjobs.sink import dedup

    monkeypatch.setattr(dedup, "CHUNK", 3)
    monkeypatch.setattr(moving, "MOVED_ROWS", 4)
    monkeypatch.setattr(database, "DELETED_ROWS", 2)
    monkeypatch.setattr(database, "STATEMENT_ROWS", 5)
    texts = [str(n) for n in range(23)]
    keys = [str(n % 17) for n in range(23)]
    assert commit(stage(*texts, dedup_key=keys)) == 17
    assert bodies("orders") == texts[:17]
    held = DedupKey.objects.exclude(message_id=None).values_list("message_id", flat=True)
    assert set(held) == set(Message.objects.values_list("pk", flat=True))


def test_a_delayed_message_waits_and_one_that_is_late_does_not(
    stage: Stage, commit: Callable[..., int], connection: Any
) -> None:
    from sparkjobs.instants import now

    at = now(connection)
    due = pa.array([at + timedelta(hours=1), at - timedelta(hours=1)], pa.timestamp("us", "UTC"))
    commit(stage("later", "now", deliver_at=due))
    sequence("default")
    assert [bytes(m.body) for m in Message.objects.exclude(offset=None)] == [b"now"]
    advance(timedelta(hours=1, seconds=1))
    sequence("default")
    assert not Message.objects.filter(offset=None).exists()


def test_a_key_goes_where_a_send_of_it_goes(
    topic: Topic, stage: Stage, commit: Callable[..., int]
) -> None:
    grow(topic, 4, "default")
    keys: list[Any] = ["a", "Zoë", "7", None, None]
    commit(stage(*map(str, keys), key=keys, partition=[None, None, 2, None, 3]))
    placed = {
        bytes(m.body).decode(): m.partition.number
        for m in Message.objects.select_related("partition").exclude(key=None)
    }
    expected = {key: partition_of(key, 4) for key in ("a", "Zoë")}
    assert placed == {**expected, "7": 2}
    assert Message.objects.filter(key=None, partition__number=3).exists()


def test_what_a_killed_write_has_staged_is_deleted_after_a_week(stage: Stage) -> None:
    stage("a", name="write of a killed driver")
    assert Purge("default").delete_old_rows()["staged"] == 0
    StagedMessage.objects.update(staged_at=UtcNow(-timedelta(days=8)))
    assert Purge("default").delete_old_rows()["staged"] == 1
    assert not StagedMessage.objects.exists()


# -- through Spark --

MESSAGE = "topic string, key string, body string, body_type string, tag string"


def write(frame: Any, config: Config, **options: object) -> None:
    writer = frame.write.format("ems").option("config", config.path).mode("append")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_a_frame_is_consumed_as_if_it_was_sent(spark: Any, config: Config) -> None:
    seen = {}

    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        seen[message.key] = (message.body, message.tag, message.headers)

    drain()
    rows = [
        ("k1", bytearray(b'{"n": [1, null]}'), "json", "new", {"trace": "é"}),
        ("k2", bytearray("text ✓".encode()), "text", None, None),
        ("k3", bytearray(b"\x00\xff'%s\\"), "bytes", None, {}),
        ("k4", None, None, None, None),
    ]
    schema = "key string, body binary, body_type string, tag string, headers map<string,string>"
    write(spark.createDataFrame(rows, schema), config, topic="orders")
    drain()
    assert seen == {
        "k1": ({"n": [1, None]}, "new", {"trace": "é"}),
        "k2": ("text ✓", "", {}),
        "k3": (b"\x00\xff'%s\\", "", {}),
        "k4": (None, "", {}),
    }


@pytest.mark.parametrize("tasks", [1, 4])
def test_one_bad_row_in_any_task_is_a_typed_error_and_nothing_is_sent(
    spark: Any, config: Config, tasks: int
) -> None:
    frame = spark.range(0, 100, 1, tasks).selectExpr(
        "cast(id as string) as body", "if(id = 99, 'no tag!', '') as tag"
    )
    place = f"row {100 // tasks - 1} of task {tasks - 1}"
    with pytest.raises(Exception, match=f"BadRow: {place}: A tag has letters"):
        write(frame, config, topic="orders")
    assert not Message.objects.exists()
    if tasks == 1:  # another task may stage rows after the abort: they are deleted by their age
        assert not StagedMessage.objects.exists()


@pytest.mark.parametrize(
    ("columns", "options", "wrong"),
    [
        ({"body": "string", "offset": "integer"}, {}, "has no column 'offset'"),
        ({"key": "string"}, {}, "no column 'body'"),
        ({"body": "double"}, {}, r"use to_json\(struct\(…\)\), with bodyType json"),
        ({"body": "string"}, {"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ({"body": "string"}, {"topik": "orders"}, "unknown options: topik"),
        ({"body": "string", "deliver_at": "date"}, {}, "deliver_at must be timestamp, not date"),
        ({"body": "string"}, {"dedupWindow": "60"}, "without a column dedup_key"),
        ({"body": "string"}, {"txnAppId": "a"}, "both or none"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_runs(
    columns: dict[str, str], options: dict[str, str], wrong: str, config: Config
) -> None:
    from pyspark.sql.types import StructType

    from sparkjobs.sink.options import SinkOptions
    from sparkjobs.sink.writer import EmsWriter

    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    given = {"config": config.path, "topic": "orders", **options}
    with pytest.raises((BadOption, BadRow), match=wrong):
        EmsWriter(SinkOptions.of(given), StructType.fromJson({"fields": fields}), False)


def test_an_overwrite_is_refused(spark: Any, config: Config) -> None:
    writer = spark.range(1).selectExpr("'x' as body").write.format("ems").mode("overwrite")
    with pytest.raises(Exception, match="messages are only ever added"):
        writer.options(config=config.path, topic="orders").save()


def test_a_write_with_a_version_is_done_once(spark: Any, config: Config) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as body")
    for _again in range(2):
        write(frame, config, topic="orders", txnAppId="import", txnVersion=7)
    assert bodies("orders") == ["0", "1", "2"]
    write(frame, config, topic="orders", txnAppId="import", txnVersion=8)
    assert len(bodies("orders")) == 6
    write(frame, config, topic="orders")
    write(frame, config, topic="orders")
    assert len(bodies("orders")) == 12


def test_a_version_is_of_one_topic(config: Config) -> None:
    from pyspark.sql.types import StringType, StructType

    from sparkjobs.sink.options import MAX_APP_ID, SinkOptions
    from sparkjobs.sink.writer import EmsWriter

    schema = StructType().add("body", StringType())
    app = "a" * MAX_APP_ID
    names = set()
    for topic in ("orders", "copies"):
        Topic.objects.get_or_create(name=topic)
        given = {"config": config.path, "topic": topic, "txnAppId": app, "txnVersion": "7"}
        for _again in range(2):
            writer = EmsWriter(SinkOptions.of(given), schema, False)
            writer.commit([writer.write(iter([batch("a")]))])
            names.add(writer.name)
        assert bodies(topic) == ["a"]
    assert len(names) == 2
    assert max(map(len, names)) + len(" sixteen-letters-/") <= 190


def test_a_message_that_is_too_large_is_a_bad_row(stage: Stage) -> None:
    SystemConfig.objects.create(name="msgMaxSizeInBytes", value=10)
    with pytest.raises(BadRow, match="row 1 of task 0: Body and headers have 11 bytes"):
        stage("0123456789", "0123456789x")


def test_what_the_log_gives_cannot_be_set(stage: Stage) -> None:
    assert stage("a", "b", offset=[None, None]).rows == 2
    with pytest.raises(BadRow, match="offset is given to a message: it must be NULL"):
        stage("a", "b", offset=[None, 7])


@pytest.fixture
def copy(spark: Any, config: Config, tmp_path: Path) -> Callable[[], Any]:
    """Copy the topic orders to the topic copies, as far as it goes, from one checkpoint."""

    def run() -> Any:
        frame = spark.readStream.format("ems").options(
            config=config.path, topic="orders", maxMessagesPerTrigger="10"
        )
        query = (
            frame.load()
            .select("key", "body", "body_type", "tag", "headers")
            .writeStream.format("ems")
            .options(config=config.path, topic="copies", checkpointLocation=str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


def test_a_stream_copies_a_topic_message_by_message(copy: Callable[[], Any]) -> None:
    Topic.objects.create(name="copies")
    for number in range(25):
        send("orders", {"n": number}, key="k", tag="t", headers={"h": "1"})
    sequence("default")
    copy()
    copy()
    assert bodies("copies") == bodies("orders")
    (whole,) = (
        Message.objects.filter(partition__topic__name="copies")
        .values_list("key", "tag", "body_type", "headers")
        .distinct()
    )
    assert whole == ("k", "t", "json", {"h": "1"})
    assert not StagedMessage.objects.exists()
