"""Defines ems_tasks, which lists, shows, runs again, cancels and deletes tasks that have begun."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from streams.contrib.tasks.cancelling import cancel_task
from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.models import TaskRun
from streams.contrib.tasks.nouns import TaskHead, TaskShown
from streams.contrib.tasks.prune import delete_ended, old_rows
from streams.durations import parse_duration
from streams.management.acts import ActVerbs
from streams.management.base import add_dry_run, add_limit, add_watch, add_yes

COLUMNS = ("id", "task", "queue", "status", "attempts", "enqueued_at", "finished_at")
ENDED = (TaskResultStatus.SUCCESSFUL.value, TaskResultStatus.FAILED.value)


class Command(ActVerbs):
    noun = TaskRun
    help = "The tasks that have begun: list, show, run again, cancel, edit and delete them."
    verbs = {
        "list": "the newest tasks",
        "show": "one task with its arguments, its result and its errors",
        "run": "run tasks again that have failed",
        "cancel": "cancel tasks that wait, and tell those that run",
        "copy": "enqueue a task anew, with other arguments or the same",
        "prune": "delete the rows of tasks that have ended",
    }

    def add_filter_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--queue", help="only of this queue")
        parser.add_argument("--path", help="only of this task, by its module path")

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        self.add_filter_arguments(parser)
        parser.add_argument("--status", choices=TaskResultStatus.values, help="only with this one")
        add_limit(parser, 20)
        add_watch(parser)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", help="the id of its result")

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", help="the id of its result")

    def add_prune_arguments(self, parser: ArgumentParser) -> None:
        self.add_filter_arguments(parser)
        parser.add_argument("--status", choices=ENDED, help="only with this one")
        text = "only those that ended so long ago, such as 12h or 7d"
        parser.add_argument("--older-than", type=parse_duration, required=True, help=text)
        add_dry_run(parser)
        add_yes(parser)

    def rows_named(self, options: Mapping[str, Any]) -> list[TaskRun]:
        found = list(self._rows().filter(result_id=options["id"]))
        if not found:
            raise CommandError(f"There is no task {options['id']} that has begun.")
        return found

    def row_named(self, options: Mapping[str, Any]) -> TaskRun:
        return self.rows_named(options)[0]

    def described(self, row: TaskRun) -> dict[str, Any]:
        return {"id": row.result_id}

    def run(self, **options: Any) -> None:
        # A task that has not begun has no row: it is cancelled by its message.
        named = options.get("id")
        if options["verb"] == "cancel" and not self._rows().filter(result_id=named).exists():
            self.do_cancel(str(named))
            return
        super().run(**options)

    def do_cancel(self, named: str) -> None:
        said = cancel_task(named, self.using)
        if said == "unknown":
            raise CommandError(f"There is no task {named}.")
        self.tell(f"{named}: {said}", id=named, outcome=said)

    def do_list(
        self, *, limit: int, queue: str | None, path: str | None, status: str | None, **options: Any
    ) -> None:
        rows = self._chosen(queue, path, status).order_by("-pk")[:limit]
        self.show_nouns((TaskHead.of(row) for row in rows), COLUMNS)

    def do_show(self, *, id: str, **options: Any) -> None:  # noqa: A002 - as it is named
        row = self.row_named({"id": id})
        texts = "\n".join(error["traceback"] for error in row.errors)
        self.show_noun(TaskShown.of(row), errors=texts)

    def do_prune(
        self,
        *,
        older_than: Any,
        queue: str | None,
        path: str | None,
        status: str | None,
        dry_run: bool,
        yes: bool,
        **options: Any,
    ) -> None:
        number = 0
        for each in [status] if status else ENDED:
            rows = old_rows(self.using, each, older_than) & self._chosen(queue, path, None)
            if dry_run:
                number += rows.count()
                continue
            self.confirm("Delete the rows of these tasks?", yes=yes)
            yes = True
            for deleted in delete_ended(rows, self.using):
                number += deleted
                self.progress(f"{number:,} deleted")
        self.progress("")
        word = "would be deleted" if dry_run else "deleted"
        self.tell(f"{number:,} {word}", deleted=number, dry_run=dry_run)

    def _rows(self) -> Any:
        return TaskRun.objects.using(self.using)

    def _chosen(self, queue: str | None, path: str | None, status: str | None) -> Any:
        given = {"queue": queue, "path": path, "status": status}
        return self._rows().filter(**{name: value for name, value in given.items() if value})
