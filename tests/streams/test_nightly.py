"""The purge of the night: due once, done by whoever is there, a part at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import OperationalError, connection, transaction
from pytest_django import Settings

from streams import Outgoing, consumer, send_many
from streams.consume.registry import registrations
from streams.database import batches
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Message,
    Partition,
    Step,
    Topic,
    UtcNow,
)
from streams.models.step import PURGE
from streams.observe.diagnoses import WARNING
from streams.observe.doctor import examine
from streams.process.supervisor import Supervisor
from streams.retain import purge as purging
from streams.retain import purge_floor
from streams.retain.abandoned_groups import abandoned
from streams.steps import nightly_purge
from streams.steps.nightly_purge import PURGE_SLICE, purge_if_due
from streams.testing import drain
from tests.sessions import Session, Threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

DAY = timedelta(days=1)


def last_ran(ago: timedelta) -> None:
    Step.objects.update_or_create(name=PURGE, defaults={"last_run_at": UtcNow(-ago)})


@pytest.fixture
def log(db: None, clean_registry: None) -> None:
    """Twenty messages that are not kept."""
    consumer("orders", group="mail")(lambda message: None)
    send_many([Outgoing("orders", n) for n in range(20)])
    drain()
    Topic.objects.update(retention_seconds=1)
    # Less than a day: then the doctor would also name who holds them back.
    Message.objects.update(sequenced_at=UtcNow(-DAY / 2))


@pytest.mark.usefixtures("log")
def test_a_purge_is_due_once_a_night() -> None:
    assert not purge_if_due("default", 60)  # a new installation waits for the night
    assert Message.objects.count() == 20
    last_ran(DAY)
    assert not purge_if_due("default", 60)
    assert Message.objects.count() == 0
    send_many([Outgoing("orders", n) for n in range(5)])
    drain()
    Message.objects.update(sequenced_at=UtcNow(-DAY))
    assert not purge_if_due("default", 60)
    assert Message.objects.count() == 5


@pytest.mark.usefixtures("log")
def test_what_one_run_does_not_finish_the_next_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH", 4)
    last_ran(DAY)
    assert purge_if_due("default", 0.0)
    while purge_if_due("default", 0.02):
        pass
    assert Message.objects.count() == 0
    assert not purge_if_due("default", 60)


@pytest.mark.usefixtures("log")
def test_of_many_partitions_each_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice may end anywhere: the next one goes on there, and does not begin anew."""
    for name in "abcdefgh":
        send_many([Outgoing(name, n) for n in range(3)])
    sequence("default")
    Topic.objects.update(retention_count=0)
    seen: list[int] = []
    original = purging.Purge._partition

    def late(self: purging.Purge, partition: Partition) -> purging.Purged:
        seen.append(partition.pk)
        outcome = original(self, partition)
        self._ends = 0.0  # the time is over
        return outcome

    monkeypatch.setattr(purging.Purge, "_partition", late)
    last_ran(DAY)
    while purge_if_due("default", 60):
        assert len(seen) < 20
    assert seen == sorted(Partition.objects.values_list("pk", flat=True))
    assert Message.objects.count() == 0


@pytest.mark.usefixtures("log")
def test_a_purge_that_fails_or_dies_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: purging.Purge) -> None:
        raise ZeroDivisionError

    last_ran(DAY)
    with monkeypatch.context() as patch:
        patch.setattr(purging.Purge, "run", fail)
        with pytest.raises(ZeroDivisionError):
            purge_if_due("default", 60)
    # One more is killed: others leave it its time, and then take over.
    assert not Step.objects.filter(name=PURGE_SLICE).exists()
    Step.objects.create(name=PURGE_SLICE, last_run_at=UtcNow())
    purge_if_due("default", 2)
    assert Message.objects.count() == 20
    Step.objects.filter(name=PURGE_SLICE).update(last_run_at=UtcNow(-timedelta(seconds=70)))
    purge_if_due("default", 2)
    assert Message.objects.count() == 0


@pytest.mark.usefixtures("log")
def test_a_topic_that_is_deleted_meanwhile_stops_no_purge(monkeypatch: pytest.MonkeyPatch) -> None:
    Topic.objects.create(name="brief", retention_seconds=1)
    original = purge_floor.kept_from

    def delete_first(partition: Partition, topic: Topic, using: str) -> purge_floor.Kept:
        Partition.objects.filter(topic__name="brief").delete()
        return original(partition, topic, using)

    monkeypatch.setattr(purging, "kept_from", delete_first)
    for run in (purging.Purge.preview, purging.Purge.run):
        Partition.objects.get_or_create(topic=Topic.objects.get(name="brief"), number=0)
        (outcome,) = run(purging.Purge("default"))
        assert outcome.floor.partition.topic.name == "orders"
    assert Message.objects.count() == 0


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("log")
def test_one_locked_partition_keeps_no_other_from_its_purge(
    second_connection: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 30 s in the real one
    monkeypatch.setattr(purging, "retrying", lambda work, using, *args: work(*args))
    send_many([Outgoing("others", n) for n in range(3)])
    sequence("default")
    Topic.objects.update(retention_count=0)
    other = second_connection()
    last_ran(DAY)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with other.active():
        transaction.set_autocommit(False)
        list(Partition.objects.select_for_update().filter(topic__name="orders"))
    assert not purge_if_due("default", 60)
    assert set(Message.objects.values_list("partition__topic__name")) == {("orders",)}
    with other.active():
        transaction.rollback()
    assert not purge_if_due("default", 60)
    assert Message.objects.count() == 0


@pytest.mark.usefixtures("log")
def test_what_one_slice_has_left_is_not_done_after_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send_many([Outgoing("others", n) for n in range(3)])
    sequence("default")
    Topic.objects.update(retention_count=0)
    original = purging.Purge._partition
    left: list[int] = []

    def partition(self: purging.Purge, row: Partition) -> purging.Purged:
        if not left:
            left.append(row.pk)
            self._ends = 0.0  # the time is over
            raise OperationalError(1205, "Lock wait timeout exceeded")
        return original(self, row)

    monkeypatch.setattr(purging.Purge, "_partition", partition)
    monkeypatch.setattr(purging, "held_by_others", lambda error, using: True)
    last_ran(DAY)
    assert purge_if_due("default", 60)
    assert not purge_if_due("default", 60)
    assert set(Message.objects.values_list("partition__topic__name")) == {("orders",)}
    assert not purge_if_due("default", 60)
    assert Message.objects.count() == 0


@pytest.mark.parametrize(
    ("now", "night"),
    [
        ("2026-11-20 12:00", "2026-11-20 02:00"),
        ("2026-11-20 02:00", "2026-11-20 02:00"),
        ("2026-11-20 01:59", "2026-11-19 02:00"),
        ("2026-11-20 00:30", "2026-11-19 02:00"),
        ("2026-07-20 00:59", "2026-07-19 01:00"),
        ("2026-07-20 01:01", "2026-07-20 01:00"),
    ],
)
def test_the_night_is_that_of_the_project(settings: Settings, now: str, night: str) -> None:
    settings.TIME_ZONE = "Europe/Berlin"

    def utc(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    found = nightly_purge._last_night(utc(now))
    assert found == utc(night)
    assert found.astimezone(ZoneInfo("Europe/Berlin")).hour == nightly_purge.PURGE_HOUR


@pytest.mark.usefixtures("log")
def test_a_clock_that_was_set_back_does_not_stop_it() -> None:
    last_ran(-2 * DAY)
    purge_if_due("default", 60)
    assert Message.objects.count() == 0


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_of_many_one_purges(in_thread: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    last_ran(DAY)
    runs: list[str] = []
    monkeypatch.setattr(purging.Purge, "run", lambda self: runs.append(self.using))
    together = threading.Barrier(6)

    def runner() -> None:
        connection.ensure_connection()
        together.wait()
        purge_if_due("default", 60)

    for future in [in_thread(runner) for _ in range(6)]:
        future.result(60)
    assert runs == ["default"]


@pytest.mark.usefixtures("log")
@pytest.mark.django_db(transaction=True)
def test_a_consumer_purges_between_two_sweeps_and_looks_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    more = [True, False]

    def look(using: str, seconds: float) -> bool:
        looks.append(seconds)
        return more[len(looks) - 1]

    monkeypatch.setattr("streams.process.supervisor.purge_if_due", look)
    supervisor = Supervisor(list(registrations()), "default")
    for _ in range(4):
        supervisor._maintain()
    assert looks == [2.0, 2.0]  # at once again, since there was more to do; then not


@pytest.mark.usefixtures("log")
def test_celery_purges() -> None:
    tasks = pytest.importorskip("streams.tasks", exc_type=ImportError)
    last_ran(DAY)
    tasks.purge()
    assert Message.objects.count() == 0


def diagnoses() -> list[str]:
    return [d.text for d in examine("default") if d.name == "retention" and d.level == WARNING]


@pytest.mark.usefixtures("log")
def test_the_doctor_names_an_abandoned_group_and_a_purge_that_nobody_runs() -> None:
    ConsumerGroup.objects.create(topic=Topic.objects.get(), name="tail", mode="broadcast")
    assert diagnoses() == []
    Cursor.objects.update(next_offset=5)
    assert diagnoses() == []  # its consumer was here a moment ago
    Delivery.objects.update(claimed_at=UtcNow(-5 * DAY))
    (found,) = abandoned("default")
    assert (found.group.name, found.messages, found.absent.days) == ("mail", 15, 5)
    assert diagnoses() == [str(found)]
    last_ran(4 * DAY)
    assert "Nothing has been purged for 4 days." in diagnoses()


def test_a_group_that_never_had_a_consumer_is_as_old_as_it_is() -> None:
    send_many([Outgoing("orders", n) for n in range(5)])
    topic = Topic.objects.get()
    topic.retention_count = 1
    topic.save()
    group = ConsumerGroup.objects.create(topic=topic, name="planned")
    Cursor.objects.create(group=group, partition=topic.partitions.get())
    sequence("default")
    assert not list(abandoned("default"))
    ConsumerGroup.objects.update(created_at=UtcNow(-2 * DAY))
    (found,) = abandoned("default")
    assert found.messages == 4
