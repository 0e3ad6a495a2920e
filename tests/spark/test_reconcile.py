"""Reconcile finds each planted fault, and nothing where there is none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from sparkjobs.config import Config
from streams import Outgoing, Reject, consumer, send_many
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
from streams.sequencer import sequence
from streams.testing import advance, drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


@pytest.fixture
def found(spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All findings, as text. The log is looked at in buckets of seven."""
    from sparkjobs import log_audit
    from sparkjobs.jobs import reconcile

    def in_small_buckets(messages: Any, logs: Any) -> Any:
        return log_audit.log_findings(messages, logs, 7)

    monkeypatch.setattr(reconcile, "log_findings", in_small_buckets)
    return lambda: [str(finding) for finding in reconcile.reconcile(spark, config)[0]]


def history(messages: int = 20, *, ordered: bool = False) -> None:
    """Two groups; of the first, every fifth fails once, and message 7 is dead."""

    @consumer("orders", group="mail", batch=None if ordered else 3, ordered=ordered)
    def handle(received):
        failed: dict[Any, Exception] = {}
        for message in [received] if ordered else received:
            if message.body == 7:
                failed[message] = Reject("odd")
            elif message.body % 5 == 4 and message.attempt == 1:
                failed[message] = ValueError("no")
        if ordered and failed:
            raise next(iter(failed.values()))
        return failed

    @consumer("orders", group="stock", batch=4)
    def count(received):
        return None

    send_many([Outgoing("orders", number) for number in range(messages)])
    sequence("default")
    for _round in range(8 if ordered else 2):
        drain()
        advance(timedelta(minutes=1))


def mail(**where: Any) -> Any:
    return Delivery.objects.filter(group__name="mail", **where)


@pytest.mark.parametrize("ordered", [False, True])
def test_there_is_nothing_to_find_where_all_was_done_retried_or_is_dead(
    found: Any, ordered: bool
) -> None:
    history(ordered=ordered)
    assert DeadMessage.objects.count() == 1
    assert mail(state="RETRY").exists()
    assert not RetryMessage.objects.exists()
    assert found() == []


def test_there_is_nothing_to_find_while_messages_wait_or_are_being_handled(found: Any) -> None:
    history()
    (letter,) = DeadMessage.objects.all()
    assert letter.redrive()
    send_many([Outgoing("orders", number) for number in range(5)])
    sequence("default")
    Delivery.objects.filter(pk=mail(kind="new").latest("pk").pk).update(
        state="START", finished_at=None
    )
    assert found() == []
    drain()
    assert found() == []


def test_there_is_nothing_to_find_in_an_empty_database(found: Any) -> None:
    assert found() == []


def test_a_hole_is_found_wherever_it_is(found: Any) -> None:
    history(30)
    for first, last in ((0, 0), (6, 7), (12, 23), (29, 29)):
        Message.objects.filter(offset__gte=first, offset__lte=last).delete()
    assert found() == [
        "hole: orders/0@0: not in the log",
        "hole: orders/0@6: not in the log",  # in pieces, where a bucket ends
        "hole: orders/0@7: not in the log",
        "hole: orders/0@12-13: not in the log",
        "hole: orders/0@14-20: not in the log",
        "hole: orders/0@21-23: not in the log",
        "hole: orders/0@29: not in the log",
    ]


def test_what_has_been_purged_is_no_hole(found: Any) -> None:
    history()
    Message.objects.filter(offset__lt=9).delete()
    Partition.objects.update(first_offset=9)
    assert found() == []


def test_a_repeat_in_the_log_is_found(spark: Any) -> None:
    from datetime import UTC, datetime

    from sparkjobs.log_audit import LOGS, log_findings

    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(1, offset, at) for offset in (0, 1, 2, 2, 3)]  # no index lets it in: by hand
    messages = spark.createDataFrame(rows, "partition_id long, offset long, sequenced_at timestamp")
    logs = spark.createDataFrame([(1, 0, 4)], LOGS)
    assert [(row[0], row[3]) for row in log_findings(messages, logs).collect()] == [("repeat", 2)]


@pytest.mark.parametrize("offset", [4, 7, 14])
def test_an_order_break_in_the_log_is_found_also_where_a_bucket_begins(
    found: Any, offset: int
) -> None:
    history()
    Message.objects.filter(offset__gte=offset).update(sequenced_at=UtcNow(timedelta(seconds=-3600)))
    assert found() == [f"order break: orders/0@{offset}: sequenced before the one before it"]


def test_a_lost_delivery_is_found_at_the_start_in_the_middle_and_at_the_end(found: Any) -> None:
    history()
    Delivery.objects.filter(group__name="stock", first_offset__in=(0, 8, 16)).delete()
    assert found() == [
        f"lost delivery: stock on orders/0@{first}-{first + 3}: passed, but in no delivery"
        for first in (0, 8, 16)
    ]


def test_a_failure_that_is_neither_a_retry_nor_dead_is_found(found: Any) -> None:
    history()
    mail(kind="retry", first_offset=4).delete()
    assert found() == [
        "lost delivery: mail on orders/0@3-5: failed, and is neither a retry nor dead"
    ]


def test_a_dead_letter_that_was_redriven_and_is_no_retry_is_found(found: Any) -> None:
    history()
    DeadMessage.objects.update(redriven_at=UtcNow())
    assert found() == ["lost delivery: mail on orders/0@7: redriven, and is no retry"]


def test_a_range_that_was_claimed_again_is_a_repeat_unless_the_cursor_was_set_back(
    found: Any,
) -> None:
    history()
    (first,) = Delivery.objects.filter(group__name="stock", first_offset=8)
    first.pk = None
    first.save(force_insert=True)
    assert found() == ["repeat: stock on orders/0@8-11: claimed again"]
    Cursor.objects.filter(group__name="stock").update(reset_at=UtcNow())
    assert found() == []


def test_a_retry_of_what_was_done_is_a_repeat_unless_it_was_asked_for(found: Any) -> None:
    history()
    (retry,) = mail(kind="retry", first_offset=4, state="DONE")
    retry.pk = None
    retry.save(force_insert=True)
    retry.pk, retry.first_offset, retry.last_offset = None, 12, 12
    retry.group = ConsumerGroup.objects.get(name="stock")
    retry.save(force_insert=True)
    assert found() == [
        "repeat: mail on orders/0@4: done more than once",
        "repeat: stock on orders/0@12: done more than once",
    ]
    letter = DeadMessage.objects.get()
    DeadMessage.objects.filter(pk=letter.pk).update(
        offset=4, redriven_at=UtcNow(timedelta(days=-1))
    )
    assert found() == ["repeat: stock on orders/0@12: done more than once"]


def test_what_is_dead_and_done_after_is_a_repeat(found: Any) -> None:
    history()
    (retry,) = mail(kind="retry", first_offset=4, state="DONE")
    retry.pk, retry.first_offset, retry.last_offset, retry.progress = None, 7, 7, 8
    retry.finished_at = UtcNow(timedelta(hours=1))
    retry.save(force_insert=True)
    assert found() == ["repeat: mail on orders/0@7: dead, and done after"]


def test_an_ordered_group_that_does_not_keep_the_order_is_found(found: Any) -> None:
    history(ordered=True)
    assert found() == []
    later = mail(kind="new").order_by("-pk")[0]
    Delivery.objects.filter(pk=later.pk).update(
        claimed_at=F("claimed_at") - timedelta(days=1)
        if connection.vendor == "mysql"
        else UtcNow(timedelta(days=-1))
    )
    place = f"{later.first_offset}-{later.last_offset}"
    if later.first_offset == later.last_offset:
        place = str(later.first_offset)
    assert found() == [
        f"order break: mail on orders/0@{place}: claimed before the one before it had ended"
    ]


def test_an_ordered_group_that_goes_past_a_failure_is_found(found: Any) -> None:
    history(ordered=True)
    mail(kind="new", first_offset__lte=4, last_offset__gte=4, failed=0).delete()
    said = found()
    assert len(said) == 1
    assert said[0].startswith("lost delivery: mail on orders/0@4")


def test_what_seems_lost_only_at_the_first_look_is_not_reported(
    spark: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import reconcile

    history()
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
