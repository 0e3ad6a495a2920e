"""Makes the diagnoses of the roll-ups and the alarms for ems_doctor."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import connections
from django.utils.translation import gettext as _

from monitoring import java
from monitoring.alarms import firing
from monitoring.alarms.texts import summary
from monitoring.models import Alarm, AlarmChannel, Run, RunState, Severity
from streams.models import UtcNow
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis

# A roll-up is due each minute: after this long without one, no process makes them.
SILENT = timedelta(minutes=15)
# The jobs of sparkjobs/jobs/rollup.py, which all run each minute.
JOBS = ("traffic", "consumption", "backlog")


def examine(using: str) -> Iterator[Diagnosis]:
    """Yield hints, and a warning only if roll-ups were made before and are made no more."""
    if Run._meta.db_table not in connections[using].introspection.table_names():
        hint = _("Run “manage.py migrate --database %s”.") % using
        yield Diagnosis(WARNING, "rollups", _("Their tables do not exist."), hint)
        return
    if lacking := java.missing():
        yield Diagnosis(OK, "spark", _("This host cannot run Spark jobs. %s") % lacking)
    else:
        yield Diagnosis(OK, "spark", _("Spark jobs can run here."))
    yield from _last_runs(using)


def _last_runs(using: str) -> Iterator[Diagnosis]:
    """Yield one diagnosis for each job that is silent, or one for all."""
    runs = Run.objects.using(using).filter(job__in=JOBS)
    ages = {}
    for job in JOBS:
        last = runs.filter(job=job, state=RunState.DONE).annotate(now=UtcNow()).order_by("-id")
        if times := last.values_list("now", "finished_at").first():
            ages[job] = times[0] - times[1]
    if not ages:
        yield Diagnosis(OK, "rollups", _("There are none: see docs/guides/spark.md."))
        return
    tried = set(runs.values_list("job", flat=True).distinct())
    # One that never came to its end, while others do, is as silent as one that does so no more.
    silent = [job for job in JOBS if job in tried and ages.get(job, SILENT * 2) > SILENT]
    for job in silent:
        if job in ages:
            values = {"job": job, "minutes": ages[job].total_seconds() // 60}
            text = _("%(job)s: the last one is %(minutes)d min old.") % values
        else:
            text = _("%(job)s: none has come to its end.") % {"job": job}
        newest = runs.filter(job=job).order_by("-id").values_list("error", flat=True).first()
        hint = _("Celery beat starts them: see ems_sync_schedules, and the table of runs.")
        yield Diagnosis(WARNING, "rollups", text, newest or hint)
    if not silent:
        oldest = max(ages.values())
        yield Diagnosis(OK, "rollups", _("ran %d s ago") % oldest.total_seconds())


def alarms(using: str) -> Iterator[Diagnosis]:
    """Yield the alarms that fire: an error for each critical one."""
    if Alarm._meta.db_table not in connections[using].introspection.table_names():
        hint = _("Run “manage.py migrate --database %s”.") % using
        yield Diagnosis(WARNING, "alarms", _("Their tables do not exist."), hint)
        return
    found = firing(using)
    for alarm in found:
        hint = alarm.runbook or _("ems_alarms ack %(id)d, or ems_alarms mute %(rule)s.") % {
            "id": alarm.pk,
            "rule": alarm.rule,
        }
        text = f"{alarm.rule}: {summary(alarm)}"
        if alarm.severity == Severity.CRITICAL:
            yield Diagnosis(ERROR, "alarm", text, hint)
        else:
            yield Diagnosis(WARNING, "alarm", text, hint)
    for channel in AlarmChannel.objects.using(using).filter(enabled=True):
        if channel.is_down:
            hint = _("ems_alarms test %s") % channel.name
            text = f"{channel.name}: {channel.last_error}"
            yield Diagnosis(WARNING, "alarm channel", text, hint)
    if not found:
        yield Diagnosis(OK, "alarms", _("None fires."))
