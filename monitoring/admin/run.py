"""Defines the page of the runs: each run of a Spark job, and how it ended."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin
from monitoring.live.spark_jobs import of_any_namespace
from monitoring.models import Run, RunState
from streams.admin.parts.columns import short
from streams.admin.parts.filters import FixedFilter


class JobFilter(FixedFilter):
    title = _("job")
    parameter_name = "job"
    options = (
        ("traffic", _("Traffic")),
        ("consumption", _("Consumption")),
        ("backlog", _("Backlog")),
        ("archive", _("Archive")),
        ("reconcile", _("Reconcile")),
    )

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(of_any_namespace(value))


class RunStateFilter(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = RunState.choices


@admin.register(Run)
class RunAdmin(RollUpAdmin):
    list_display = (
        *("id", "job", "state"),
        "since",
        "until",
        *("read", "rows", "missed"),
        "seconds",
        "started_at",
        short("about"),
        short("error"),
    )
    list_filter = (JobFilter, RunStateFilter)
    ordering = ("-id",)
    order_of_chosen = ("-id",)
    fields = (
        ("job", "state"),
        ("since", "until", "resume_at"),
        ("read", "rows", "missed"),
        ("started_at", "finished_at"),
        "seconds",
        "about",
        "error",
    )
