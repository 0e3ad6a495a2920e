"""Defines ems_redrives, which lists the redrives at a rate, stops them and lets them go on."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from streams.management.acts import ActVerbs
from streams.management.base import add_limit, add_watch, positive
from streams.models import Redrive
from streams.nouns.redrive import RedriveShown

COLUMNS = (
    *("redrive", "about", "state", "rate", "done", "left_out", "total", "begun_at", "begun_by"),
)


class Command(ActVerbs):
    noun = Redrive
    help = "The redrives of dead letters at a rate: how far they are; stop them, go on."
    verbs = {
        "list": "the newest redrives, and how far they are",
        "stop": "redrive no more",
        "resume": "go on with one that was stopped",
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        add_limit(parser, 20)
        add_watch(parser)

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=positive, help="its id")

    def row_named(self, options: Mapping[str, Any]) -> Redrive:
        found: Redrive | None = self._rows().filter(pk=options["id"]).first()
        if found is None:
            raise CommandError(f"There is no redrive {options['id']}.")
        return found

    def described(self, row: Redrive) -> dict[str, Any]:
        return {"redrive": row.pk}

    def do_list(self, *, limit: int, **options: Any) -> None:
        rows = self._rows().order_by("-pk")[:limit]
        self.show_nouns((RedriveShown.of(row) for row in rows), COLUMNS)

    def _rows(self) -> Any:
        return Redrive.objects.using(self.using).defer("ids")
