"""Makes the diagnoses of the roll-ups and the alarms for ems_doctor."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import connections

from monitoring import java
from monitoring.alarms import firing
from monitoring.alarms.log import RECONCILE
from monitoring.alarms.texts import summary
from monitoring.live.spark_jobs import AT_NIGHT, JOBS, LIMITS, PROGRESS, SERVE, SILENT, own, works
from monitoring.models import Alarm, AlarmChannel, AlarmState, Run, RunState, Severity
from streams.database.clock import database_now
from streams.durations import brief
from streams.models import UtcNow
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis
from streams.release import documentation


def examine(using: str) -> Iterator[Diagnosis]:
    """Yield hints, and a warning only if roll-ups were made before and are no longer made."""
    if Run._meta.db_table not in connections[using].introspection.table_names():
        hint = f"Run “manage.py migrate --database {using}”."
        yield Diagnosis(WARNING, "rollups", "Their tables do not exist.", hint)
        return
    if lacking := java.missing():
        yield Diagnosis(OK, "spark", f"This host cannot run Spark jobs. {lacking}")
    else:
        yield Diagnosis(OK, "spark", "Spark jobs can run here.")
    yield from _last_runs(using)
    for job in AT_NIGHT:
        yield from _nightly(job, using)
    yield from _service(using)


def _last_runs(using: str) -> Iterator[Diagnosis]:
    """Yield one diagnosis for each job that is silent, or one for all."""
    runs = Run.objects.using(using)
    ages: dict[str, timedelta] = {}
    done = set()
    for job in JOBS:
        of_job = runs.filter(job=job).annotate(now=UtcNow()).order_by("-id")
        ends = of_job.filter(PROGRESS).values_list("now", "finished_at").first()
        if ends is not None:
            done.add(job)
        # One that was never done is as old as its first try.
        times = ends or of_job.values_list("now", "started_at").last()
        if times is not None and times[1] is not None:
            ages[job] = times[0] - times[1]
    if not done:
        guide = documentation("guides/spark.md")
        yield Diagnosis(OK, "rollups", f"There are none: see {guide}.")
        return
    silent = [job for job in ages if ages[job] > SILENT]
    if silent and works(using, AT_NIGHT):
        silent = []
    for job in silent:
        if job in done:
            minutes = ages[job].total_seconds() // 60
            text = f"{job}: the last one is {minutes:.0f} min old."
        else:
            text = f"{job}: none has come to its end."
        error = runs.filter(job=job).order_by("-id").values_list("error", flat=True).first()
        hint = "ems_spark serve or Celery beat makes them: see the table of runs."
        yield Diagnosis(WARNING, "rollups", text, error or hint)
    if not silent:
        oldest = max(ages.values())
        yield Diagnosis(OK, "rollups", f"ran {oldest.total_seconds():.0f} s ago")


def _nightly(job: str, using: str) -> Iterator[Diagnosis]:
    """Say how the last run of a job of the night has ended; nothing if there is none."""
    run = Run.objects.using(using).filter(job=own(job)).order_by("-id").first()
    if run is None:
        return
    hint = f"See the table of runs, and run it again: ems_spark {job}."
    age = database_now(using) - (run.finished_at or run.started_at)
    if run.state == RunState.FAILED:
        yield Diagnosis(WARNING, job, (run.error.splitlines() or ["It has failed."])[0], hint)
    elif run.state == RunState.RUNNING and age > LIMITS[job]:
        yield Diagnosis(WARNING, job, f"It began {brief(age)} ago, and was killed.", hint)
    elif run.state == RunState.RUNNING:
        yield Diagnosis(OK, job, "It is at work.")
    elif job == RECONCILE and run.rows:
        hint = "What was found is in the admin: the page Audit of the monitoring."
        yield Diagnosis(ERROR, job, f"{run.about}, {brief(age)} ago", hint)
    else:
        yield Diagnosis(OK, job, f"{run.about}, {brief(age)} ago")


def _service(using: str) -> Iterator[Diagnosis]:
    """Say how the resident service does, if there is one."""
    runs = Run.objects.using(using).annotate(now=UtcNow()).order_by("-id")
    rows = runs.filter(job=SERVE).values_list("state", "until", "now", "error")
    state, until, now, error = rows.first() or (None, None, None, "")
    if state != RunState.RUNNING or until is None or now is None:
        return
    since = now - until
    if since > SILENT and not works(using, LIMITS):
        text = f"ems_spark serve has done nothing for {since.total_seconds() // 60:.0f} min."
        hint = "Was it killed? Start it again, or leave the roll-ups to Celery beat."
        yield Diagnosis(WARNING, "serve", text, hint)
    elif error:
        hint = "It goes on with the other jobs: see the table of runs."
        yield Diagnosis(WARNING, "serve", error.splitlines()[0], hint)
    else:
        yield Diagnosis(OK, "serve", "ems_spark serve is at work.")


def _remedy(alarm: Alarm) -> str:
    """Return what to do, or who already does it if the alarm is acknowledged."""
    if alarm.state == AlarmState.ACKNOWLEDGED:
        note = f" ({alarm.note})" if alarm.note else ""
        text = "%(who)s takes care of it%(note)s. It ends by itself with its condition."
        done = text % {"who": alarm.acknowledged_by, "note": note}
        return f"{done} {alarm.runbook}".strip()
    return alarm.runbook or f"ems_alarms ack {alarm.pk}, or ems_alarms mute {alarm.rule}."


def alarms(using: str) -> Iterator[Diagnosis]:
    """Yield the alarms that fire: an error for each critical one."""
    if Alarm._meta.db_table not in connections[using].introspection.table_names():
        hint = f"Run “manage.py migrate --database {using}”."
        yield Diagnosis(WARNING, "alarms", "Their tables do not exist.", hint)
        return
    found = firing(using)
    for alarm in found:
        text = summary(alarm)
        hint = _remedy(alarm)
        if alarm.severity == Severity.CRITICAL:
            yield Diagnosis(ERROR, "alarm", text, hint)
        else:
            yield Diagnosis(WARNING, "alarm", text, hint)
    for channel in AlarmChannel.objects.using(using).filter(enabled=True):
        if channel.is_down:
            hint = f"ems_alarms test {channel.name}"
            text = f"{channel.name}: {channel.last_error}"
            yield Diagnosis(WARNING, "alarm channel", text, hint)
    if not found:
        yield Diagnosis(OK, "alarms", "None fires.")
