"""Defines the page of the time-driven steps: when each one last ran."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from streams.admin.base import ReadOnly
from streams.admin.parts.figures import age
from streams.models import Step, UtcNow


@admin.register(Step)
class StepAdmin(ReadOnly):
    """The steps that run by the clock, and when each last ran."""

    list_display = ("name", "last_run_at", "ago")
    ordering = ("name",)
    sortable_by = ()
    fields = ("name", "last_run_at", "ago")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        timed: QuerySet[Any] = rows.annotate(now=UtcNow())
        return timed

    @admin.display(description=_("ago"))
    def ago(self, row: Any) -> str:
        return age(row.now - row.last_run_at)
