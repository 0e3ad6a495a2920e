"""A read that gets fewer messages than offsets says what is missing, or that it was purged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from sparkjobs.config import Config
from sparkjobs.errors import MessagesPurged, Missing
from sparkjobs.source import reading, shortage
from streams.log.ends import End
from streams.log.rewinds import jump
from streams.models import Message, Partition, Topic
from tests.spark.direct import Reading, part, sent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


def truncate() -> None:
    sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM ems_msg" if sqlite else "TRUNCATE ems_msg")


def test_after_a_truncate_a_read_fails_and_names_what_is_missing(config: Config) -> None:
    sent(messages=10)
    truncate()
    with pytest.raises(Missing, match=r"orders/0: 10 offsets are not in the log: 0 … 9; with"):
        Reading(config, topic="orders").rows()
    sent(messages=2)  # whose ids begin again
    assert len(Reading(config, "offset", topic="orders", holes="skip").rows()) == 2


def test_the_first_missing_offsets_are_named_and_skipping_them_is_said(
    config: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    sent(messages=10)
    Message.objects.filter(offset__in=(3, 4, 7)).delete()
    with pytest.raises(Missing, match=r"orders/0: 3 offsets are not in the log: 3 … 4, …; "):
        Reading(config, "offset", topic="orders").rows()
    reading = Reading(config, "offset", topic="orders", holes="skip")
    assert reading.offsets() == [0, 1, 2, 5, 6, 8, 9]
    assert (
        "ems: orders/0: 3 offsets are not in the log: 3 … 4, …: skipped" in capfd.readouterr().err
    )
    Message.objects.filter(offset__in=(3, 4)).delete()
    with pytest.raises(Missing, match="orders/0: 1 offset is not in the log: 7; "):
        Reading(config, "offset", topic="orders", start=5).rows()


def test_only_the_partition_that_is_short_is_named(config: Config) -> None:
    sent("flights", 30)
    orders = sent("orders", 30)
    Message.objects.filter(partition=orders, offset=29).delete()
    with pytest.raises(Missing, match=r"^orders/0: 1 offset is not in the log: 29; "):
        Reading(config, "offset").rows()


def test_what_is_purged_while_it_is_read_is_not_taken_for_a_hole_nor_a_hole_for_it(
    config: Config,
) -> None:
    partition = sent(messages=10)
    planned = part(partition, 0, 10)
    Message.objects.filter(offset__lt=4).delete()
    Partition.objects.update(first_offset=4)
    for options in ({}, {"holes": "skip"}):
        with pytest.raises(MessagesPurged, match="before 4 were purged while 0 … 9 were read"):
            Reading(config, "offset", **options).task(planned)
    skipping = Reading(config, "offset", purged="skip")
    assert [row["offset"] for row in skipping.task(planned)] == [4, 5, 6, 7, 8, 9]
    Message.objects.filter(offset=6).delete()
    with pytest.raises(Missing, match="1 offset is not in the log: 6; "):
        skipping.task(planned)


def test_what_is_purged_after_it_was_read_does_not_hide_a_hole_elsewhere(config: Config) -> None:
    partition = sent(messages=10)
    Message.objects.filter(offset=8).delete()
    Message.objects.filter(offset__lt=4).delete()
    Partition.objects.update(first_offset=4)
    with pytest.raises(Missing, match="1 offset is not in the log: 8; "):
        Reading(config, "offset").task(part(partition, 5, 10))


def test_a_topic_that_is_deleted_while_it_is_read_is_purged(config: Config) -> None:
    planned = part(sent(messages=10), 0, 10)
    Message.objects.all().delete()
    Partition.objects.all().delete()
    Topic.objects.all().delete()
    with pytest.raises(MessagesPurged, match="while 0 … 9 were read"):
        Reading(config, "offset").task(planned)
    assert Reading(config, "offset", purged="skip").task(planned) == []


def cut_short(patch: pytest.MonkeyPatch, rows: int) -> None:
    """Let each read of a task end after ``rows`` rows, as if there were no more."""

    def stopped(self: Any, *given: Any) -> Iterator[Any]:
        for read in whole(self, *given):
            yield {name: column[:rows] for name, column in read.items()}
            return

    whole = reading.Task._arrays
    patch.setattr(reading.Task, "_arrays", stopped)


@pytest.mark.parametrize("purged", [0, 2])
@pytest.mark.parametrize("holes", [0, 3])
def test_a_read_that_was_cut_short_is_never_taken_for_holes_or_purged_messages(
    purged: int, holes: int, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = part(sent(messages=20), 0, 20)
    Message.objects.filter(offset__lt=purged).delete()
    Partition.objects.update(first_offset=purged)
    Message.objects.filter(offset__gte=20 - holes).delete()
    task = Reading(config, "offset", failOnDataLoss="false")
    assert len(task.task(planned)) == 20 - purged - holes
    cut_short(monkeypatch, 19 - purged - holes)
    with pytest.raises(Missing, match=r"rows of the offsets 0 … 19 were received, .* read again"):
        task.task(planned)


def test_a_long_range_is_checked_in_steps(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "STEP", 4)
    sent(messages=30)
    Message.objects.filter(offset__in=[*range(6, 18), 25]).delete()
    with pytest.raises(Missing, match=r"13 offsets are not in the log: 6 … 17, …; "):
        Reading(config, "offset", topic="orders").rows()
    assert len(Reading(config, "offset", topic="orders", holes="skip").rows()) == 17


def test_what_a_rewound_log_leaves_out_is_not_missing(config: Config) -> None:
    sent(messages=10)
    partition = Partition.objects.get()
    rewind = jump(partition.pk, End(15, 0), "default")
    assert rewind
    sent(messages=2)
    assert Reading(config, "offset", topic="orders").offsets() == [
        *range(10),
        rewind.next_offset,
        rewind.next_offset + 1,
    ]
    Message.objects.filter(offset=7).delete()
    with pytest.raises(Missing, match="orders/0: 1 offset is not in the log: 7; "):
        Reading(config, "offset", topic="orders").rows()
