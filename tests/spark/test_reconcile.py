"""Reconcile finds each planted fault, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from monitoring.live.spark_jobs import own
from monitoring.models import ArchivedDay, AuditFinding, Run
from sparkjobs.audit.noted import NamedFinding
from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import Busy
from sparkjobs.lock import alone
from streams import Outgoing, Postpone, Reject, consumer, send_many
from streams.consume.outcome.dead_letter import redrive
from streams.log.ends import End
from streams.log.rewinds import jump
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Partition,
    RetryMessage,
    UtcNow,
)
from streams.operate.topic_deletion import TopicDeletion
from streams.testing import advance, drain

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


@pytest.fixture
def found(spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All findings, as text. The log and the groups are looked at in buckets of seven."""
    from sparkjobs.audit import groups, log
    from sparkjobs.jobs import reconcile

    def in_small_buckets(messages: Any, logs: Any) -> Any:
        return log.log_findings(messages, logs, 7)

    def of_groups(**frames: Any) -> Any:
        return groups.group_findings(**frames, bucket=7)

    monkeypatch.setattr(reconcile, "log_findings", in_small_buckets)
    monkeypatch.setattr(reconcile, "group_findings", of_groups)
    return lambda: [str(finding) for finding in reconcile.reconcile(spark, config)[0]]


def history(topic: str, messages: int = 20, *, ordered: bool = False) -> None:
    """Two groups; of the first, every fifth fails once, 7 is dead, and 11 is postponed once."""
    waited: list[int] = []

    @consumer(topic, group="mail", batch=None if ordered else 3, ordered=ordered)
    def handle(received):
        failed: dict[Any, Exception] = {}
        for message in [received] if ordered else received:
            if message.body == 7:
                failed[message] = Reject("odd")
            elif message.body % 5 == 4 and message.attempt == 1:
                failed[message] = ValueError("no")
            elif message.body == 11 and not waited:
                waited.append(11)
                failed[message] = Postpone(1)
        if ordered and failed:
            raise next(iter(failed.values()))
        return None if ordered else failed

    @consumer(topic, group="stock", batch=4)
    def count(received):
        return None

    send_many([Outgoing(topic, number) for number in range(messages)])
    sequence("default")
    for _round in range(8 if ordered else 2):
        drain()
        advance(timedelta(minutes=1))


def of(topic: str, group: str, **where: Any) -> Any:
    return Delivery.objects.filter(partition__topic__name=topic, group__name=group, **where)


def again(delivery: Any, offset: int | None = None, group: str | None = None) -> None:
    """The same delivery once more; or of another offset, or by another group; done later."""
    (copy,) = delivery
    copy.pk = None
    if offset is not None:
        copy.first_offset = copy.last_offset = offset
        copy.progress = offset + 1
        copy.finished_at = UtcNow(timedelta(hours=1))
    if group is not None:
        copy.group = ConsumerGroup.objects.get(name=group, topic=copy.group.topic_id)
    copy.save(force_insert=True)


@pytest.mark.exhaustive
def test_there_is_nothing_to_find_where_all_was_done_retried_or_is_dead_or_waits(
    found: Any,
) -> None:
    assert found() == []  # in an empty database
    history("orders")
    history("trains", ordered=True)
    assert DeadMessage.objects.count() == 2
    assert Delivery.objects.filter(group__name="mail", state="RETRY").exists()
    assert not RetryMessage.objects.exists()
    (letter,) = DeadMessage.objects.filter(topic__name="orders")
    assert redrive(letter)
    send_many([Outgoing("orders", number) for number in range(5)])
    sequence("default")
    open_now = of("orders", "mail", kind="new").latest("pk")
    Delivery.objects.filter(pk=open_now.pk).update(state="START", finished_at=None)
    # What has been purged is not a hole.
    Message.objects.filter(partition__topic__name="trains", offset__lt=9).delete()
    Partition.objects.filter(topic__name="trains").update(first_offset=9)
    assert found() == []


@pytest.mark.exhaustive
def test_holes_repeats_and_order_breaks_of_the_log_are_found_wherever_they_are(
    found: Any, spark: Any
) -> None:
    history("orders", 30)
    log = Message.objects.filter(partition__topic__name="orders")
    for first, last in ((0, 0), (6, 7), (12, 23), (29, 29)):
        log.filter(offset__gte=first, offset__lte=last).delete()
    for topic, broken in (("cars", 4), ("planes", 7), ("ships", 14)):  # a bucket begins at 7
        send_many([Outgoing(topic, number) for number in range(20)])
        sequence("default")
        later = Message.objects.filter(partition__topic__name=topic, offset__gte=broken)
        later.update(sequenced_at=UtcNow(timedelta(seconds=-3600)))
    assert found() == [
        "order break: cars/0@4: sequenced before the one before it",
        "hole: orders/0@0: not in the log",
        "hole: orders/0@6: not in the log",  # in pieces, where a bucket ends
        "hole: orders/0@7: not in the log",
        "hole: orders/0@12-13: not in the log",
        "hole: orders/0@14-20: not in the log",
        "hole: orders/0@21-23: not in the log",
        "hole: orders/0@29: not in the log",
        "order break: planes/0@7: sequenced before the one before it",
        "order break: ships/0@14: sequenced before the one before it",
    ]


def test_a_repeat_in_the_log_is_found(spark: Any) -> None:
    from datetime import UTC, datetime

    from sparkjobs.audit.log import LOGS, log_findings

    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(1, offset, at) for offset in (0, 1, 2, 2, 3)]  # no index lets it in: by hand
    messages = spark.createDataFrame(rows, "partition_id long, offset long, sequenced_at timestamp")
    logs = spark.createDataFrame([(1, 0, 4)], LOGS)
    assert [(row[0], row[3]) for row in log_findings(messages, logs).collect()] == [("repeat", 2)]


@pytest.mark.exhaustive
def test_lost_and_repeated_deliveries_are_found(found: Any) -> None:
    history("orders", 40)
    # No delivery at the start, in the middle and at the end.
    of("orders", "stock", first_offset__in=(0, 8, 36)).delete()
    # A range that was claimed twice, though nobody has set the cursor back.
    again(of("orders", "stock", first_offset=16))
    # A failure that has no retry; a letter that was redriven and is none.
    of("orders", "mail", kind="retry", first_offset=4).delete()
    letter = DeadMessage.objects.get()
    letter.pk, letter.offset, letter.redriven_at = None, 31, UtcNow()
    letter.save(force_insert=True)
    # A retry that was done twice; one of what its claim had done; one of what is dead.
    again(of("orders", "mail", kind="retry", first_offset=9))
    again(of("orders", "mail", kind="retry", first_offset=14), 21, "stock")
    again(of("orders", "mail", kind="retry", first_offset=14, state="DONE"), 7)
    assert found() == [
        "lost delivery: mail on orders/0@3-5: failed, and is neither a retry nor dead",
        "repeat: mail on orders/0@7: dead, and done after",
        "repeat: mail on orders/0@9: done more than once",
        "lost delivery: mail on orders/0@31: redriven, and is not a retry",
        "lost delivery: stock on orders/0@0-3: passed, but in no delivery",
        "lost delivery: stock on orders/0@8-11: passed, but in no delivery",
        "repeat: stock on orders/0@16-19: claimed again",
        "repeat: stock on orders/0@21: done more than once",
        "lost delivery: stock on orders/0@36-39: passed, but in no delivery",
    ]


def test_claims_are_sorted_in_buckets_and_long_ones_reach_into_those_after(spark: Any) -> None:
    """A claim of 25 offsets covers three buckets, of which two have none of their own."""
    from sparkjobs.audit.groups import CURSORS, _coverage

    cursors = spark.createDataFrame([(1, 1, 0, 60, False, False, None)], CURSORS)
    claims = [(0, 24), (25, 29), (33, 39), (35, 44), (45, 57)]
    rows = [(1, 1, 0, 60, None, first, last, last, id_) for id_, (first, last) in enumerate(claims)]
    columns = "group_id long, partition_id long, floor long, end long, reset_at timestamp,"
    columns += " first_offset long, reach long, done_reach long, id long"
    frame = spark.createDataFrame(rows, columns)
    for bucket in (7, 1000):
        found = _coverage(frame, cursors, bucket)
        assert sorted((row[0], row[3], row[4]) for row in found.collect()) == [
            ("lost delivery", 30, 32),
            ("lost delivery", 58, 59),
            ("repeat", 35, 39),
        ]


@pytest.mark.exhaustive
def test_what_was_asked_for_again_is_no_repeat(found: Any) -> None:
    history("orders", 40)
    again(of("orders", "stock", first_offset=16))
    Cursor.objects.filter(group__name="stock").update(reset_at=UtcNow())
    again(of("orders", "mail", kind="retry", first_offset=9))
    DeadMessage.objects.update(offset=9, redriven_at=UtcNow(timedelta(days=-1)))
    assert found() == []


@pytest.mark.exhaustive
def test_an_ordered_group_that_does_not_keep_the_order_is_found(found: Any) -> None:
    history("orders", ordered=True)
    of("orders", "mail", kind="new", first_offset__lte=4, last_offset__gte=4, failed=0).delete()
    last = of("orders", "mail", kind="new").order_by("-pk")[0]
    Delivery.objects.filter(pk=last.pk).update(claimed_at=UtcNow(timedelta(days=-1)))
    assert last.last_offset == 19
    lost, order = found()
    assert lost.startswith("lost delivery: mail on orders/0@4")
    assert order.startswith("order break: mail on orders/0@1")
    assert order.endswith("claimed before the one before it had ended")


@pytest.mark.exhaustive
def test_breaks_of_order_are_found_in_buckets_of_ids(spark: Any) -> None:
    """No task sorts more claims than a bucket has, however long a group has existed."""
    from datetime import UTC, datetime

    from sparkjobs.audit.groups import _order

    nine = datetime(2026, 1, 1, 9, tzinfo=UTC)
    # A claim a minute, each done after half a minute; ids have gaps of more than a bucket.
    claims: list[tuple[int, int, int, float, float | None]] = [
        (n, n * 10, n * 10 + 9, 0.0, 30.0) for n in (1, 2, 3, 4, 40, 41, 42, 43)
    ]
    for at, changed in (
        (2, (3, 30, 39, -45.0, 30.0)),  # before the one before had ended
        (4, (40, 20, 29, 0.0, 30.0)),  # back
        (6, (42, 420, 429, 0.0, None)),  # open: the next one breaks the order
    ):
        claims[at] = changed
    rows = [
        (
            *(7, 1, True, "DONE", None, id_, first, last),
            nine + timedelta(minutes=id_, seconds=claimed),
            None if ended is None else nine + timedelta(minutes=id_, seconds=ended),
        )
        for id_, first, last, claimed, ended in claims
    ]
    columns = (
        "group_id long, partition_id long, is_ordered boolean, state string, reset_at timestamp,"
        " id long, first_offset long, last_offset long, claimed_at timestamp, finished_at timestamp"
    )
    frame = spark.createDataFrame(rows, columns)
    for bucket in (1, 2, 10_000):
        found = _order(frame, bucket).toArrow().to_pylist()
        assert sorted(row["first_offset"] for row in found) == [20, 30, 430], bucket
    plan = _order(frame, 2)._jdf.queryExecution().optimizedPlan().toString()
    sorts = [line for line in plan.splitlines() if "Window [lag(claim" in line]
    assert sorts
    assert all("bucket" in line.split("windowspecdefinition(")[1] for line in sorts)


@pytest.mark.exhaustive
def test_what_seems_lost_only_at_the_first_look_is_not_reported(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import reconcile

    history("orders")
    letter = DeadMessage.objects.get()
    looks: list[int] = []
    honest = reconcile._look

    def look(*arguments: Any) -> Any:
        looks.append(1)
        state = None if len(looks) > 1 else letter.died_at
        DeadMessage.objects.filter(pk=letter.pk).update(redriven_at=state)
        return honest(*arguments)

    monkeypatch.setattr(reconcile, "_look", look)
    assert reconcile.reconcile(spark, config)[0] == []
    assert len(looks) == 2


@pytest.mark.exhaustive
def test_what_a_rewound_log_leaves_out_is_no_hole(found: Any) -> None:
    history("orders")
    assert jump(Partition.objects.get().pk, End(25, 0), "default")
    send_many([Outgoing("orders", number) for number in range(20)])
    drain()
    assert found() == []


def test_the_archive_of_a_topic_that_was_rewound_and_is_gone_is_whole(config: Config) -> None:
    """With the topic goes what says which offsets its log has left out."""
    from sparkjobs.jobs.reconcile import _archive_findings

    consumer("orders", group="mail")(lambda message: None)
    send_many([Outgoing("orders", number) for number in range(20)])
    drain()
    log = Partition.objects.get()
    assert jump(log.pk, End(30, 0), "default")
    log.refresh_from_db()
    end = log.next_offset
    given = {"partition": log, "topic": "orders", "number": 0, "bytes": 0, "hash": "0", "path": ""}
    day = date(2026, 3, 5)
    ArchivedDay.objects.create(day=day, first_offset=0, end_offset=end, messages=20, **given)

    def found() -> list[str]:
        with connected(config) as connection:
            return [str(one) for one in _archive_findings(connection, config)]

    assert found() == []
    archived = ArchivedDay.objects.filter(day=day)
    archived.update(messages=19)
    assert found() == [f"hole: orders/0@0-{end - 1}: the archive has 19 of 20"]
    archived.update(messages=20)
    deletion = TopicDeletion(log.topic, "default", force=True)
    deletion.close()
    deletion.finish()
    assert not Partition.objects.exists()
    assert found() == []
    given |= {"first_offset": end + 5, "end_offset": end + 6, "messages": 1}
    ArchivedDay.objects.create(day=day + timedelta(days=1), **given)
    assert found() == [f"hole: orders/0@{end}-{end + 4}: not in the archive"]


@pytest.fixture
def look(config: Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``look(*findings)`` is a reconcile that finds these."""
    from sparkjobs.jobs import reconcile

    spark: Any = None

    def check(*found: NamedFinding) -> list[str]:
        said: list[str] = []
        result = list(found), reconcile.Compared(20, 1, 2, None)
        monkeypatch.setattr(reconcile, "reconcile", lambda *arguments: result)
        assert reconcile.check(spark, config, said.append) == len(found)
        return said

    return check


def reconcile_alarms() -> set[str]:
    from monitoring.alarms.metrics import measure

    return {str(subject) for subject in measure("reconcile", "default") or {}}


LOST = NamedFinding("lost delivery", "stock on orders/0", 8, 11, "passed, in no delivery")
HOLE = NamedFinding("hole", "orders/0", 7, 7, "not in the log")


def test_the_verdict_and_the_findings_of_each_look_are_noted_once(look: Any) -> None:
    said = look()
    clean = Run.objects.get()
    assert (clean.job, clean.state, clean.rows) == ("reconcile", "done", 0)
    assert [clean.about] == said == ["20 messages of 1 partitions, 2 cursors: nothing is wrong"]
    assert clean.until
    assert reconcile_alarms() == set()
    said = look(LOST)
    assert said[0] == "lost delivery: stock on orders/0@8-11: passed, in no delivery"
    row = AuditFinding.objects.get()
    assert (row.source, row.kind, row.count) == ("reconcile", "lost delivery", 4)
    assert (row.place, row.detail) == ("stock on orders/0@8-11", "passed, in no delivery")
    assert Run.objects.latest("pk").about == said[1]
    assert reconcile_alarms() == {"lost delivery in stock on orders/0"}
    look(LOST, HOLE)
    again = AuditFinding.objects.get(kind="lost delivery")
    assert again.found_at == row.found_at < again.seen_at
    assert reconcile_alarms() == {"lost delivery in stock on orders/0", "hole in orders/0"}
    # What is put right stays as history, and its alarm ends.
    look(HOLE)
    assert AuditFinding.objects.count() == 2
    assert reconcile_alarms() == {"hole in orders/0"}
    look()
    assert reconcile_alarms() == set()


def test_a_look_of_another_namespace_ends_no_alarm_of_this_one(
    look: Any, config: Config, monkeypatch: pytest.MonkeyPatch, ems_settings: Any
) -> None:
    from sparkjobs.jobs import reconcile

    look(LOST)
    spark: Any = None
    clean: Any = [], reconcile.Compared(20, 1, 2, None)
    monkeypatch.setattr(reconcile, "reconcile", lambda *arguments: clean)
    reconcile.check(spark, replace(config, namespace="green"), print)
    assert reconcile_alarms() == {"lost delivery in stock on orders/0"}
    ems_settings(NAMESPACE="green")
    assert reconcile_alarms() == set()
    assert Run.objects.latest("pk").job == own("reconcile")


def test_a_look_whose_verdict_cannot_be_written_notes_nothing_and_says_so(
    look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process loses the database between the findings and the end of its run."""
    from sparkjobs.rollup.runs import Run as Record

    def lost(self: Any, connection: Any, **values: Any) -> None:
        raise OSError("the server has gone away")

    monkeypatch.setattr(Record, "done", lost)
    with pytest.raises(OSError, match="gone away"):
        look(LOST)
    assert not AuditFinding.objects.exists()
    failed = Run.objects.get()
    assert (failed.state, failed.error) == ("failed", "OSError: the server has gone away")


def test_two_looks_at_once_are_refused(look: Any, config: Config) -> None:
    """The second one would end the run of the first one as killed."""
    with alone(config, "reconcile"), pytest.raises(Busy):
        look()
    assert not Run.objects.exists()
