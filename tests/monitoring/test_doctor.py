"""What the doctor says of the roll-ups: a warning only where somebody relies on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from monitoring.models import Alarm, Run
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis
from streams.observe.doctor import examine
from tests.monitoring.alarming import alarm

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


@pytest.mark.parametrize("job", ["archive", "reconcile"])
def test_an_old_one_is_well_while_the_service_does_the_work_of_the_night(job: str) -> None:
    run("done", 20)
    nightly = Run.objects.create(job=job, state="running", started_at=ago(18))
    assert rollups().level == OK
    # It was killed: it does not work for so long.
    Run.objects.filter(pk=nightly.pk).update(started_at=ago(13 * 60))
    assert rollups().level == WARNING
    Run.objects.filter(pk=nightly.pk).update(started_at=ago(18), state="done")
    assert rollups().level == WARNING


@pytest.mark.django_db(databases=["default", "other"])
def test_the_work_of_the_night_may_be_that_of_another_database(ems_settings: Any) -> None:
    """One process does the work of all of them, one after the other."""
    run("done", 20)
    Run.objects.create(job="serve", state="running", until=ago(20))
    Run.objects.using("other").create(job="archive", state="running", started_at=ago(18))
    assert (rollups().level, service()[0].level) == (WARNING, WARNING)
    ems_settings(SHARDS={"clicks": "other"})
    assert (rollups().level, service()[0].level) == (OK, OK)


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


def test_one_job_that_fails_is_a_warning_however_well_the_others_do() -> None:
    run("done", 1)
    Run.objects.create(job="consumption", state="done", finished_at=ago(40))
    assert rollups().level == WARNING
    assert "consumption" in rollups().text
    Run.objects.create(job="consumption", state="failed", error="OSError: gone")
    assert rollups().hint == "OSError: gone"


def test_a_run_that_has_computed_the_past_once_more_has_got_no_further() -> None:
    """It has a beginning and no end; the first windows of a long traffic have neither."""
    run("done", 1)
    Run.objects.create(job="consumption", state="done", until=ago(40), finished_at=ago(40))
    Run.objects.create(job="consumption", state="done", since=ago(90), finished_at=ago(1))
    assert (rollups().level, rollups().text) == (
        WARNING,
        "consumption: the last one is 40 min old.",
    )
    Run.objects.filter(job="consumption").delete()
    assert rollups().text[:4] == "ran "


def test_a_job_that_was_never_done_is_as_old_as_its_first_try() -> None:
    run("done", 1)
    Run.objects.create(job="consumption", state="failed", started_at=ago(40), error="no")
    Run.objects.create(job="consumption", state="failed", started_at=ago(1), error="still no")
    assert (rollups().level, rollups().hint) == (WARNING, "still no")
    assert rollups().text == "consumption: none has come to its end."


def service() -> list[Diagnosis]:
    return [diagnosis for diagnosis in examine("default") if diagnosis.name == "serve"]


def test_a_resident_service_is_at_work_silent_or_failing() -> None:
    assert service() == []
    row = Run.objects.create(job="serve", state="running", until=ago(1))
    assert [found.level for found in service()] == [OK]
    Run.objects.filter(pk=row.pk).update(error="rollup: OSError: gone\nmore")
    assert [(found.level, found.text) for found in service()] == [
        (WARNING, "rollup: OSError: gone")
    ]
    Run.objects.filter(pk=row.pk).update(until=ago(20), error="")
    assert [found.level for found in service()] == [WARNING]
    assert "20 min" in service()[0].text
    archive = Run.objects.create(job="archive", state="running", started_at=ago(18))
    assert [found.level for found in service()] == [OK]  # it has much to do
    archive.delete()
    Run.objects.filter(pk=row.pk).update(state="done")
    assert service() == []


def nightly(job: str) -> list[tuple[str, str]]:
    return [(found.level, found.text) for found in examine("default") if found.name == job]


def test_each_job_of_the_night_has_its_row_with_what_it_has_done() -> None:
    run("done", 2)
    assert nightly("reconcile") == nightly("archive") == []  # nobody has run them
    about = "120 messages of 2 partitions, 3 cursors: nothing is wrong"
    clean = Run.objects.create(job="reconcile", state="done", about=about, finished_at=ago(60))
    assert nightly("reconcile") == [(OK, f"{about}, 1 h 0 min ago")]
    clean.delete()
    lost = Run.objects.create(
        job="reconcile", state="done", rows=2, about="2 findings", finished_at=ago(60)
    )
    assert nightly("reconcile") == [(ERROR, "2 findings, 1 h 0 min ago")]
    lost.delete()
    Run.objects.create(job="archive", state="failed", error="OSError: full\nat …")
    assert nightly("archive") == [(WARNING, "OSError: full")]
    begun = Run.objects.create(job="archive", state="running", started_at=ago(60))
    assert nightly("archive") == [(OK, "It is at work.")]
    Run.objects.filter(pk=begun.pk).update(started_at=ago(13 * 60))
    assert nightly("archive") == [(WARNING, "It began 13 h 0 min ago, and was killed.")]


@pytest.mark.parametrize("job", ["archive", "reconcile"])
def test_each_namespace_has_its_own_night_and_waits_for_those_of_the_others(
    job: str, ems_settings: Any
) -> None:
    run("done", 20)
    Run.objects.create(job=job, state="failed", error="OSError: full")
    ems_settings(NAMESPACE="blue")
    assert nightly(job) == []
    Run.objects.create(job=f"{job} blue", state="running", started_at=ago(18))
    assert nightly(job) == [(OK, "It is at work.")]
    ems_settings(NAMESPACE="")
    assert nightly(job) == [(WARNING, "OSError: full")]
    assert rollups().level == OK


@pytest.mark.parametrize(("job", "minutes"), [("reconcile", 13 * 60), ("traffic", 70)])
def test_a_service_that_was_killed_at_work_is_silent(job: str, minutes: int) -> None:
    """Nobody ends the row of the job that it was at."""
    Run.objects.create(job="serve", state="running", until=ago(minutes))
    Run.objects.create(job=job, state="running", started_at=ago(minutes))
    assert [found.level for found in service()] == [WARNING]


def ago(minutes: int) -> datetime:
    return timezone.now() - timedelta(minutes=minutes)


# -- the alarms --


def remedy() -> str:
    (found,) = [diagnosis for diagnosis in examine("default") if diagnosis.name == "alarm"]
    return found.hint


def test_the_remedy_of_an_alarm_is_to_take_it_or_what_its_runbook_says() -> None:
    row = alarm()
    assert remedy() == f"ems_alarms ack {row.pk}, or ems_alarms mute lag."
    Alarm.objects.update(runbook="https://wiki.example/lag")
    assert remedy() == "https://wiki.example/lag"


def test_an_alarm_that_somebody_has_taken_needs_nobody_else() -> None:
    row = alarm()
    row.acknowledge("ann")
    assert remedy() == "ann takes care of it. It ends by itself with its condition."
    Alarm.objects.update(note="new disk", runbook="https://wiki.example/lag")
    assert remedy().startswith("ann takes care of it (new disk). It ends")
    assert remedy().endswith("https://wiki.example/lag")
