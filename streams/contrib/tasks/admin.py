"""Defines the admin pages of the tasks: each attempt, its arguments and what came of it."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts import figures
from streams.admin.parts.columns import below
from streams.admin.parts.filters import FixedFilter
from streams.admin.parts.listing import ListReading
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.models import TaskBatch, TaskRun, TaskSchedule
from streams.contrib.tasks.queues import backends

LEVELS = {
    TaskResultStatus.READY: figures.QUIET,
    TaskResultStatus.RUNNING: figures.GOOD,
    TaskResultStatus.SUCCESSFUL: figures.GOOD,
    TaskResultStatus.FAILED: figures.BAD,
}


class TasksAdmin(ReadOnly, LargeAdmin):
    """A page with the templates of EMS, which the admin would look for by the label of the app."""

    change_list_template = "admin/ems/change_list.html"
    change_form_template = "admin/ems/change_form.html"
    object_history_template = "admin/ems/object_history.html"


class StatusFilter(FixedFilter):
    title = _("status")
    parameter_name = "status"
    options = TaskResultStatus.choices


class QueueFilter(FixedFilter):
    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        queues = sorted({queue for backend in backends() for queue in backend.queues})
        self.options = [(queue, queue) for queue in queues]
        return self.options


@admin.register(TaskRun)
class TaskRunAdmin(TasksAdmin):
    list_display = ("named", "state", "queue", "enqueued_at", "took", figures.counted("attempts"))
    list_display_links = ("named",)
    list_filter = (StatusFilter, QueueFilter)
    search_fields = ("id",)
    search_help_text = _("The id of a result, of a message, or the name of a task.")
    fields = (
        ("path", "result_id", "state"),
        ("queue", "priority", "backend", "of_batch"),
        ("enqueued_at", "started_at", "last_attempted_at", "finished_at", "cancelled_at"),
        ("message_id", "partition", "offset"),
        "shown_arguments",
        "shown_value",
        "shown_metadata",
        "made",
    )

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if request.user.has_perm("ems.view_body"):
            return self.layout
        hidden = ("shown_arguments", "shown_value", "shown_metadata")
        return [one for one in self.layout if one not in hidden]

    @admin.display(description=_("task"))
    def named(self, row: TaskRun) -> str:
        return below(figures.titled(row.path, 60), row.result_id)

    @admin.display(description=_("status"))
    def state(self, row: TaskRun) -> str:
        status = TaskResultStatus(row.status)
        # Who is told while it runs may finish all the same.
        told = row.cancelled_at is not None and status != TaskResultStatus.SUCCESSFUL
        text = _("Cancelled") if told and row.finished_at else status.label
        return figures.state(text, figures.QUIET if told else LEVELS[status])

    @admin.display(description=_("batch"))
    def of_batch(self, row: TaskRun) -> str:
        return figures.UNKNOWN if row.batch_id is None else str(row.batch_id)

    @admin.display(description=_("took"))
    def took(self, row: TaskRun) -> str:
        if row.finished_at is None or row.last_attempted_at is None:
            return figures.UNKNOWN
        return figures.took(row.finished_at - row.last_attempted_at)

    @admin.display(description=_("arguments"))
    def shown_arguments(self, row: TaskRun) -> str:
        return _json(row.arguments)

    @admin.display(description=_("return value"))
    def shown_value(self, row: TaskRun) -> str:
        if row.status != TaskResultStatus.SUCCESSFUL:
            return figures.UNKNOWN
        return _json(row.return_value)

    @admin.display(description=_("metadata"))
    def shown_metadata(self, row: TaskRun) -> str:
        return _json(row.metadata)

    @admin.display(description=_("attempts"))
    def made(self, row: TaskRun) -> str:
        """Return the processes that have tried it, and what each failed attempt has raised."""
        workers = ", ".join(row.worker_ids) or figures.UNKNOWN
        traces = format_html_join(
            "",
            "<details><summary>{}</summary><pre>{}</pre></details>",
            ((one["exception_class_path"], one["traceback"]) for one in row.errors),
        )
        return format_html("{}{}", workers, traces)

    def reading(self, request: HttpRequest) -> ListReading:
        if self.search(request).text:
            return ListReading()
        return ListReading(is_bounded=bool({"status", "queue"} & request.GET.keys()))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.strip()
        if not text:
            return queryset, False
        # Each has an index: ems_task_result, ems_task_path, ems_task_message.
        found = Q(result_id=text) | Q(path=text)
        if text.isdecimal() and len(text) <= 18:
            found |= Q(message_id=int(text))
        return queryset.filter(found), False


@admin.register(TaskBatch)
class TaskBatchAdmin(TasksAdmin):
    list_display = ("id", figures.counted("total"), "created_at", "finished_at", "failed")
    fields = (("id", "backend", "total", "failed"), ("created_at", "finished_at"))


@admin.register(TaskSchedule)
class TaskScheduleAdmin(TasksAdmin):
    list_display = ("name", "now", "last_tick_at")
    fields = (("name", "now", "last_tick_at"),)
    ordering = ("name",)

    @admin.display(description=_("state"))
    def now(self, row: TaskSchedule) -> str:
        if row.paused:
            return figures.state(_("paused"), figures.WARNING)
        return figures.state(_("on"), figures.GOOD)


def _json(value: Any) -> str:
    return format_html("<pre>{}</pre>", json.dumps(value, indent=2, ensure_ascii=False))
