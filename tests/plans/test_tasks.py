"""The plans of the tasks: one row by its key, or a short range."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

pytest.importorskip("streams.contrib.tasks.compat")

from streams.contrib.tasks import sql
from streams.contrib.tasks.batches import _counted
from streams.contrib.tasks.messages import _waits
from streams.contrib.tasks.models import TaskRun, TaskSlot
from streams.contrib.tasks.names import GROUP
from streams.contrib.tasks.prune import old_rows
from streams.contrib.tasks.running import usual_of
from streams.database.sql.dialect import execute, fetch
from streams.models import ConsumerGroup, Message, UtcNow
from tests.plans.seed import DELIVERIES, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

STATUSES = ("SUCCESSFUL",) * 28 + ("FAILED", "RUNNING")


@pytest.fixture(scope="module")
def tasks(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Three thousand tasks of ten names, and the slots of two hundred keys."""
    with django_db_blocker.unblock():
        write()
        yield
        TaskRun.objects.all().delete()
        TaskSlot.objects.all().delete()


def write() -> None:
    TaskRun.objects.bulk_create(
        TaskRun(
            result_id=f"{number}.x",
            message_id=number,
            backend="default",
            queue="default",
            path=f"shop.tasks.task_{number % 10}",
            arguments={},
            status=STATUSES[number % 30],
            batch_id=number // 10 + 1 if number % 3 else None,
            enqueued_at=UtcNow(),
            last_attempted_at=UtcNow(),
            finished_at=UtcNow(timedelta(seconds=-number)),
        )
        for number in range(3000)
    )
    TaskSlot.objects.bulk_create(
        TaskSlot(key_hash=number.to_bytes(32), number=slot)
        for number in range(200)
        for slot in range(5)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE ems_task, ems_task_slot")
        cursor.fetchall()


def used(statements: Any) -> set[tuple[str, str | None]]:
    return {(step.access, step.key) for one in statements for step in one.steps if step.table}


def test_a_run_is_found_by_its_result_and_written_by_its_key(tasks: None) -> None:
    row = TaskRun.objects.get(result_id="1500.x")
    with explained() as statements:
        fetch("default", sql.READ_RUN, [row.result_id])
    assert used(statements) == {("const", "ems_task_result")}
    with explained() as statements:
        execute("default", sql.SAVE_METADATA, ["{}", row.pk, row.token])
    assert {key for _access, key in used(statements)} == {"PRIMARY"}


def test_a_task_waits_as_short_ranges_of_its_group_say(seeded: Seed) -> None:
    ConsumerGroup.objects.filter(pk=seeded.group.pk).update(name=GROUP)
    log = Message.objects.filter(partition=seeded.partition).select_related("partition")
    handled = log.get(offset=DELIVERIES - 1)
    with explained() as statements:
        assert not _waits(handled, "default")
    statements.assert_sound()
    own, cursors, deliveries, retries = statements
    assert "ems_cursor.ems_cursor_place" in own.indexes
    assert cursors.indexes == ["ems_cursor.ems_cursor_place"]
    assert deliveries.indexes[0].startswith("ems_topic_group_log.ems_log_")
    assert retries.indexes == [], "a look by a unique key, that finds nothing, reads no table"


def test_a_slot_is_taken_from_those_of_its_key(tasks: None) -> None:
    key = (7).to_bytes(32)
    with explained() as statements:
        assert execute("default", sql.TAKE_SLOT["mysql"], [1, 1, 0, 0, key, 5])
    assert {key for _access, key in used(statements)} == {"ems_task_slot_place"}
    with explained() as statements:
        assert execute("default", sql.FREE_SLOT, [key, 1])
    assert {key for _access, key in used(statements)} == {"ems_task_slot_place"}


def test_the_end_of_a_batch_is_counted_in_an_index(tasks: None) -> None:
    with explained() as statements:
        assert _counted(101, "default") == (7, 0)
    assert {key for _access, key in used(statements)} == {"ems_task_of_batch"}


def test_what_is_usual_is_read_from_the_newest_of_a_name(tasks: None) -> None:
    with explained() as statements:
        assert usual_of({"shop.tasks.task_3"}, "default")
    assert {key for _access, key in used(statements)} <= {"ems_task_path", "PRIMARY"}


def test_old_tasks_are_found_by_when_they_ended(tasks: None) -> None:
    rows = old_rows("default", "FAILED", timedelta(minutes=40)).order_by("finished_at")
    with explained() as statements:
        assert list(rows.values_list("pk", flat=True)[:500])
    keys = {step.key for one in statements for step in one.steps if step.table == "ems_task"}
    assert keys == {"ems_task_ended"}
