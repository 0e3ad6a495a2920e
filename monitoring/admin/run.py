"""Defines the page of the runs: each run of a Spark job, and how it ended."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin, seconds
from monitoring.models import Run, RunState
from streams.admin.parts.columns import at, short
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


class StateFilter(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = RunState.choices


@admin.register(Run)
class RunAdmin(RollUpAdmin):
    list_display = (
        *("id", "job", "state"),
        at("since", _("from")),
        at("until", _("to")),
        *("read", "rows", "missed"),
        seconds("seconds", _("took")),
        at("started_at", _("started")),
        short("about", _("about")),
        short("error", _("error")),
    )
    list_filter = (JobFilter, StateFilter)
    ordering = ("-id",)
    order_of_chosen = ("-id",)
    fields = (
        ("job", "state"),
        (at("since", _("from")), at("until", _("to")), at("resume_at", _("next from"))),
        ("read", "rows", "missed"),
        (at("started_at", _("started")), at("finished_at", _("finished"))),
        seconds("seconds", _("took")),
        "about",
        "error",
    )
