"""Defines the lists of hours and days."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.admin.base import RollUpAdmin
from monitoring.models import (
    BacklogLevel,
    ConsumptionLevel,
    ErrorLevel,
    Grain,
    LatencyLevel,
    TrafficLevel,
)
from streams.admin.parts.filters import FixedFilter
from streams.admin.parts.listing import ListReading

WHEN = ("grain", "start")
GROUP = "group"


class GrainFilter(FixedFilter):
    title = _("grain")
    parameter_name = "grain"
    options = tuple((str(grain.value), grain.label) for grain in Grain)


class LevelAdmin(RollUpAdmin):
    """The admin of days, then hours, the newest first: in the order of their index."""

    list_filter = (GrainFilter,)

    def reading(self, request: HttpRequest) -> ListReading:
        return ListReading(self.ordering)


@admin.register(TrafficLevel)
class TrafficLevelAdmin(LevelAdmin):
    list_display = (*WHEN, "partition", "messages", "bytes", "delayed")
    ordering = ("-grain", "-start", "-partition_id")
    fields = (WHEN, "partition", ("messages", "bytes", "delayed"))


@admin.register(ConsumptionLevel)
class ConsumptionLevelAdmin(LevelAdmin):
    list_display = (
        *(*WHEN, GROUP, "client_id", "thread"),
        *("consumed", "failed", "retried", "dead", "lost", "longest_seconds"),
    )
    ordering = ("-grain", "-start", "-group_id", "-client_id", "-thread")
    fields = (
        WHEN,
        (GROUP, "client_id", "thread"),
        ("deliveries", "consumed", "failed", "retried", "dead"),
        ("lost", "missing", "passed"),
        ("busy_seconds", "longest_seconds"),
    )


@admin.register(LatencyLevel)
class LatencyLevelAdmin(LevelAdmin):
    list_display = (*(*WHEN, GROUP, "leg", "messages"), "mean", "worst")
    ordering = ("-grain", "-start", "-group_id", "-leg")
    fields = (WHEN, (GROUP, "leg"), ("messages", "mean", "worst"), "histogram")


@admin.register(ErrorLevel)
class ErrorLevelAdmin(LevelAdmin):
    list_display = (*WHEN, GROUP, "error_class", "failed", "dead")
    ordering = ("-grain", "-start", "-group_id", "-error_class")
    fields = (WHEN, GROUP, ("error_class", "failed", "dead"))


@admin.register(BacklogLevel)
class BacklogLevelAdmin(LevelAdmin):
    list_display = (*WHEN, GROUP, "behind", "least", "waiting", "dead")
    ordering = ("-grain", "-start", "-group_id")
    fields = ((*WHEN, "samples"), GROUP, ("behind", "least", "waiting", "dead"), "age_seconds")
