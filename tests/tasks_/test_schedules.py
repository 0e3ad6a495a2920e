"""Each tick of a schedule is enqueued once, whoever notices it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ImproperlyConfigured

from streams.contrib.tasks import schedules
from streams.contrib.tasks.cron import Cron, Every, InvalidSchedule
from streams.contrib.tasks.models import TaskSchedule
from streams.contrib.tasks.settings import TaskSettings
from streams.models import Message, UtcNow
from streams.testing import advance, drain
from tests.hostapp.models import Handled
from tests.processes import wait_for
from tests.sessions import Threads

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(text: str, begin: str, number: int, zone: ZoneInfo = BERLIN) -> list[str]:
    cron, found, last = Cron.parse(text, zone), [], at(begin)
    for _tick in range(number):
        last = cron.after(last)
        assert cron.newest(last) == last
        assert cron.newest(last + timedelta(seconds=59)) == last
        found.append(f"{last:%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("text", "begin", "expected"),
    [
        ("*/20 * * * *", "2026-03-01 10:05", ["03-01 10:20", "03-01 10:40", "03-01 11:00"]),
        ("0 7 * * 1-5", "2026-03-06 07:00", ["03-09 06:00", "03-10 06:00"]),
        ("30 4 1,15 * *", "2026-06-01 12:00", ["06-15 02:30", "07-01 02:30"]),
        # Both days limited: one is enough.
        ("0 0 13 * fri", "2026-02-01 00:00", ["02-05 23:00", "02-12 23:00", "02-19 23:00"]),
        ("0 12 29 feb *", "2026-01-01 00:00", ["02-29 11:00"]),
        ("0 0 * * 7", "2026-03-02 00:00", ["03-07 23:00"]),
        # Clocks go forward on 29 March at 02:00, which is 01:00 UTC.
        ("30 2 * * *", "2026-03-28 00:00", ["03-28 01:30", "03-29 01:30", "03-30 00:30"]),
        ("*/30 * * * *", "2026-03-29 00:15", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
        # And back on 25 October at 03:00: 02:30 comes twice, at 00:30 and 01:30 UTC.
        ("30 2 * * *", "2026-10-24 12:00", ["10-25 00:30", "10-26 01:30"]),
        ("30 * * * *", "2026-10-25 00:00", ["10-25 00:30", "10-25 01:30", "10-25 02:30"]),
    ],
)
def test_a_cron_expression_is_due_by_the_wall_clock(
    text: str, begin: str, expected: list[str]
) -> None:
    assert ticks(text, begin, len(expected)) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        *("* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("a * * * *", "*/0 * * * *", "5-1 * * * *", "* * 30 feb *", "", "1,,2 * * * *"),
        "*/x * * * *",
    ],
)
def test_what_cannot_be_read_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSchedule):
        Cron.parse(wrong, BERLIN)


def test_a_period_has_the_same_ticks_in_every_process() -> None:
    every = Every(timedelta(minutes=10))
    assert every.newest(at("2026-01-01 10:19")) == at("2026-01-01 10:10")
    assert every.after(at("2026-01-01 10:10")) == at("2026-01-01 10:20")


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": "a.b"},
        {"cron": "* * * * *"},
        {"task": "a.b", "cron": "* * * * *", "every": 5},
        {"task": "a.b", "every": 0},
        {"task": "a.b", "cron": "* * *"},
        {"task": "a.b", "cron": "* * * * *", "timezone": "Nowhere/At_all"},
        {"task": "a.b", "every": 5, "wrong": 1},
    ],
)
def test_a_wrong_schedule_is_refused_with_the_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"schedule digest|fields"):
        TaskSettings.of("default", [], {"schedules": {"digest": wrong}})


DIGEST = {"task": "tests.tasks_.work.note", "every": "1h", "args": ["digest"]}


@pytest.fixture
def digest(use_tasks: Callable[..., Any], transactional_db: None) -> Any:
    return use_tasks(OPTIONS={"schedules": {"digest": DIGEST}})


def missed(hours: float) -> None:
    TaskSchedule.objects.update(last_tick_at=UtcNow(-timedelta(hours=hours)))


def test_a_new_schedule_has_missed_nothing(digest: Any) -> None:
    schedules.enqueue_due("default")
    row = TaskSchedule.objects.get()
    now = datetime.now(UTC)
    assert row.name == "digest"
    soon = Every(timedelta(hours=1)).after(now) <= now + timedelta(minutes=1)
    assert Message.objects.count() == 0 or soon


def test_of_the_missed_ticks_the_newest_one_is_enqueued(digest: Any) -> None:
    schedules.enqueue_due("default")
    Message.objects.all().delete()
    missed(5)
    assert schedules.enqueue_due("default") == 1
    assert schedules.enqueue_due("default") == 0
    drain()
    assert Handled.objects.get().value == "digest"


def test_a_tick_is_sent_before_its_time_and_runs_at_it(
    digest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules.enqueue_due("default")
    Message.objects.all().delete()
    now = datetime.now(UTC)
    tick = Every(timedelta(hours=1)).after(now)
    TaskSchedule.objects.update(last_tick_at=now)
    monkeypatch.setattr(schedules, "database_now", lambda using: tick - timedelta(seconds=5))
    assert schedules.enqueue_due("default") == 1
    assert Message.objects.get().due_at == tick
    drain()
    assert not Handled.objects.exists()
    advance(timedelta(hours=1))
    drain()
    assert Handled.objects.count() == 1


def test_a_paused_schedule_skips_its_ticks(digest: Any) -> None:
    schedules.enqueue_due("default")
    Message.objects.all().delete()
    TaskSchedule.objects.update(paused=True)
    missed(5)
    assert schedules.enqueue_due("default") == 0
    TaskSchedule.objects.update(paused=False)
    assert schedules.enqueue_due("default") == 0


def test_a_clock_that_is_set_back_repeats_no_tick(
    digest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules.enqueue_due("default")
    missed(5)
    schedules.enqueue_due("default")
    number = Message.objects.count()
    back = datetime.now(UTC) - timedelta(hours=3)
    monkeypatch.setattr(schedules, "database_now", lambda using: back)
    assert schedules.enqueue_due("default") == 0
    TaskSchedule.objects.all().delete()  # even then the dedup key is there
    schedules.enqueue_due("default")
    monkeypatch.undo()
    schedules.enqueue_due("default")
    assert Message.objects.count() == number


def test_a_schedule_of_a_missing_task_does_not_stop_the_others(
    use_tasks: Callable[..., Any], transactional_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    lost = {"task": "tests.tasks_.work.lost", "every": 5}
    use_tasks(OPTIONS={"schedules": {"a": lost, "digest": DIGEST}})
    schedules.enqueue_due("default")
    missed(5)
    assert schedules.enqueue_due("default") == 1
    assert "The schedule a fails" in caplog.text


@pytest.mark.mysql
def test_of_several_steps_each_tick_is_enqueued_by_one(digest: Any, in_thread: Threads) -> None:
    schedules.enqueue_due("default")
    Message.objects.all().delete()
    missed(5)
    sent = [in_thread(schedules.enqueue_due, "default") for _step in range(5)]
    assert sum(one.result() for one in sent) == 1
    assert Message.objects.count() == 1


def more_than(number: int) -> bool:
    return Handled.objects.count() > number


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.mysql
def test_five_processes_run_each_second_once(
    use_tasks: Callable[..., Any], spawn: Any, ems_settings: Callable[..., None]
) -> None:
    """Two of them are killed, and others take their place."""
    each = {"task": "tests.tasks_.work.note_now", "every": 1}
    use_tasks(QUEUES=["default"], OPTIONS={"schedules": {"each": each}})
    ems_settings(POLL_SECONDS=0.1)
    running = [spawn.command("ems_consume", "--no-supervisor") for _process in range(5)]
    for _round in range(2):
        enough = Handled.objects.count() + 6
        wait_for(partial(more_than, enough))
        running.pop().kill()
        running.append(spawn.command("ems_consume", "--no-supervisor"))
    wait_for(partial(more_than, 25))
    for child in running:
        child.terminate()
    runs = sorted(
        datetime.fromisoformat(v) for v in Handled.objects.values_list("value", flat=True)
    )
    assert len(runs) == len(set(runs))
    between = {later - earlier for earlier, later in pairwise(runs)}
    assert between == {timedelta(seconds=1)}
