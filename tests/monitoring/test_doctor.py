"""What the doctor says of the roll-ups: a warning only where somebody relies on them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from monitoring.models import Run
from streams.observe.diagnoses import OK, WARNING, Diagnosis
from streams.observe.doctor import examine

pytestmark = pytest.mark.django_db


def rollups() -> Diagnosis:
    (found,) = [diagnosis for diagnosis in examine("default") if diagnosis.name == "rollups"]
    return found


def run(state: str, minutes_ago: int, error: str = "", job: str = "traffic") -> None:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    Run.objects.create(job=job, state=state, finished_at=at, error=error)


def test_whoever_never_rolled_up_needs_not() -> None:
    run("failed", 60, "no Java")
    assert rollups().level == OK


def test_a_fresh_one_is_well() -> None:
    run("done", 2)
    assert (rollups().level, rollups().text[:4]) == (OK, "ran ")


def test_an_old_one_is_a_warning_with_what_went_wrong_since() -> None:
    run("done", 20)
    assert rollups().level == WARNING
    assert "20 min" in rollups().text
    assert "beat" in rollups().hint
    run("failed", 10, "OSError: the disk is full")
    assert rollups().hint == "OSError: the disk is full"


def test_each_job_that_fails_is_a_warning_though_the_others_do_not() -> None:
    for job in ("traffic", "backlog"):
        run("done", 1, job=job)
    run("done", 40, job="consumption")
    run("failed", 1, "OperationalError: locked", job="consumption")
    assert rollups().level == WARNING
    assert rollups().text == "consumption: the last one is 40 min old."
    assert rollups().hint == "OperationalError: locked"
    Run.objects.filter(job="consumption", state="done").delete()
    assert rollups().text == "consumption: none has come to its end."


@pytest.mark.django_db(transaction=True)
def test_missing_tables_are_a_warning() -> None:
    with connection.schema_editor() as editor:
        editor.alter_db_table(Run, "ems_monitoring_run", "ems_monitoring_away")
    try:
        found = rollups()
        assert found.level == WARNING
        assert "migrate" in found.hint
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Run, "ems_monitoring_away", "ems_monitoring_run")
