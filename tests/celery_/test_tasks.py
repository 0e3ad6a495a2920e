"""The tasks as they are on the broker, and the schedule that asks for them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from pytest_django import Settings
from redis import Redis

from streams import schedule, send, tasks
from streams.models import Message
from tests.celery_.app import configured
from tests.processes import Child, started

TASKS = ("sequence", "sweep", "retries", "purge", "steps")


@pytest.mark.redis
@pytest.mark.parametrize("name", TASKS)
def test_a_task_expires_within_its_period_and_keeps_no_result(redis_keys: str, name: str) -> None:
    app = configured()
    app.set_current()
    before = len(messages(redis_keys))
    app.tasks[f"ems.{name}"].delay()  # as somebody calls it who knows no schedule
    headers = messages(redis_keys)[before]["headers"]
    assert headers["task"] == f"ems.{name}"
    assert headers["expires"]
    assert headers["ignore_result"]
    assert getattr(tasks, name).expires == schedule.EVERY[name]
    with closing(Redis.from_url(os.environ["EMS_TEST_REDIS_URL"])) as redis:
        assert not list(redis.scan_iter(f"*{redis_keys}*meta*"))


def messages(prefix: str) -> list[dict[str, Any]]:
    with closing(Redis.from_url(os.environ["EMS_TEST_REDIS_URL"])) as redis:
        return [json.loads(text) for text in redis.lrange(f"{prefix}celery", 0, -1)]


def test_every_task_is_scheduled_and_nothing_else() -> None:
    assert {entry["task"] for entry in schedule.SCHEDULE.values()} == {f"ems.{n}" for n in TASKS}
    for entry in schedule.SCHEDULE.values():
        assert entry["options"]["expires"] <= entry["schedule"]
    assert {getattr(tasks, name).name for name in TASKS} == {f"ems.{name}" for name in TASKS}


@pytest.mark.django_db(databases=["default", "other"])
def test_a_task_works_on_the_alias_that_it_is_given() -> None:
    for alias in ("default", "other"):
        send("orders", 1, using=alias)
    tasks.sequence(using="other")
    assert Message.objects.using("default").inbox().exists()
    assert not Message.objects.using("other").inbox().exists()


# -- ems_sync_schedules --


@pytest.mark.django_db
def test_the_schedule_is_added_once_and_an_operators_edits_survive() -> None:
    assert sync() == dict.fromkeys(schedule.of_all_apps(), "added")
    row = PeriodicTask.objects.get(name="ems-sweep")
    assert (row.task, row.interval.every, row.interval.period) == ("ems.sweep", 5, "seconds")
    assert row.expire_seconds == 5
    PeriodicTask.objects.filter(name="ems-sweep").update(enabled=False, expire_seconds=99)
    PeriodicTask.objects.filter(name="ems-retries").delete()
    there = dict.fromkeys(schedule.of_all_apps(), "left as it is")
    assert sync() == there | {"ems-retries": "added"}
    row.refresh_from_db()
    assert (row.enabled, row.expire_seconds) == (False, 99)


@pytest.mark.django_db
def test_reset_forces_the_defaults_whatever_was_made_of_an_entry() -> None:
    sync()
    row = PeriodicTask.objects.get(name="ems-sweep")
    row.interval, row.crontab = None, CrontabSchedule.objects.create(minute="*/5")
    row.enabled, row.kwargs = False, '{"using": "other"}'
    row.save()
    assert sync("--reset", "--dry-run") == dict.fromkeys(schedule.of_all_apps(), "set")
    row.refresh_from_db()
    assert not row.enabled
    assert sync("--reset") == dict.fromkeys(schedule.of_all_apps(), "set")
    row.refresh_from_db()
    row.full_clean()
    assert (row.enabled, row.crontab, row.kwargs) == (True, None, "{}")
    assert row.interval.every == 5


@pytest.mark.django_db
def test_a_dry_run_adds_nothing() -> None:
    assert sync("--dry-run") == dict.fromkeys(schedule.of_all_apps(), "added")
    assert not PeriodicTask.objects.exists()


@pytest.mark.django_db
def test_intervals_are_shared_even_where_there_are_several_equal_ones() -> None:
    for _ in range(2):
        IntervalSchedule.objects.create(every=1, period=IntervalSchedule.SECONDS)
    sync()
    assert IntervalSchedule.objects.filter(every=1).count() == 2


@pytest.mark.django_db
def test_another_alias_has_entries_of_its_own() -> None:
    sync()
    others = sync("--database", "other")
    assert {f"ems-other-{name}" for name in TASKS} <= set(others)
    assert not set(others) & set(schedule.of_all_apps())
    row = PeriodicTask.objects.get(name="ems-other-sweep")
    assert json.loads(row.kwargs) == {"using": "other"}
    assert json.loads(PeriodicTask.objects.get(name="ems-sweep").kwargs) == {}


def test_without_django_celery_beat_the_command_says_what_to_install(settings: Settings) -> None:
    settings.INSTALLED_APPS = [a for a in settings.INSTALLED_APPS if a != "django_celery_beat"]
    with pytest.raises(CommandError, match="Install django-celery-beat"):
        call_command("ems_sync_schedules")


@pytest.mark.django_db
def test_each_database_of_the_topics_has_entries(ems_settings: Callable[..., None]) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    expected = {*schedule.of_all_apps(), *schedule.of_all_apps("other")}
    assert set(sync("--dry-run")) == expected
    assert set(sync("--dry-run", "--database", "default")) == set(schedule.of_all_apps())


def sync(*options: str) -> dict[str, str]:
    out = StringIO()
    call_command("ems_sync_schedules", "--json", *options, stdout=out)
    return {row["entry"]: row["outcome"] for row in json.loads(out.getvalue())}


# -- the project in emsproject/ --

WITHOUT = """\
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("celery", "django_celery_beat", "kombu", "redis"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name in ("celery", "django_celery_beat") else find(name, package))
"""
CHECK = """\
import django
from django.core.management import call_command
django.setup()
call_command("check")
from django.apps import apps
print("beat" if apps.is_installed("django_celery_beat") else "no beat")
"""


@pytest.mark.parametrize(
    ("preface", "said"),
    [pytest.param("", "beat", marks=pytest.mark.exhaustive), (WITHOUT, "no beat")],
)
def test_the_project_runs_with_and_without_celery(tmp_path: Path, preface: str, said: str) -> None:
    assert in_the_project(preface + CHECK, tmp_path).splitlines()[-1] == said


def test_the_projects_application_knows_the_tasks_and_takes_json_only(tmp_path: Path) -> None:
    code = """\
import django
django.setup()
from emsproject.celery import app
app.loader.import_default_modules()
print(sorted(n for n in app.tasks if n.startswith("ems.")))
print(app.conf.task_serializer, list(app.conf.accept_content), app.conf.task_ignore_result)
"""
    text = in_the_project(code, tmp_path)
    for name in TASKS:
        assert f"'ems.{name}'" in text
    assert "json ['json'] True" in text


def in_the_project(code: str, state: Path) -> str:
    env = {name: text for name, text in os.environ.items() if not name.endswith("_URL")}
    env |= {"DJANGO_SETTINGS_MODULE": "emsproject.settings", "EMS_STATE_DIR": str(state)}
    child = Child(started([sys.executable, "-c", code], env))
    try:
        return child.succeed()
    finally:
        child.close()
