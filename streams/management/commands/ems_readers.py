"""Defines ems_readers, which lists the streams of Spark that read topics, and forgets them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from streams.management.acts import ActVerbs
from streams.management.base import add_watch, positive
from streams.models import Reader
from streams.nouns.reader import ReaderShown
from streams.retain.readers import readers

COLUMNS = (
    *("reader", "name", "checkpoint", "topic", "state", "behind", "lost", "age_seconds"),
    *("per_second", "retention_used", "protects", "seen_at"),
)


class Command(ActVerbs):
    noun = Reader
    help = "The streams of Spark that read topics: how far they are; forget one."
    verbs = {
        "list": "the streams, those that need somebody first",
        "forget": "forget where a stream is; no purge waits for it any more",
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        add_watch(parser)

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=positive, help="its id")

    def row_named(self, options: Mapping[str, Any]) -> Reader:
        rows = Reader.objects.using(self.using).select_related("topic")
        found = rows.filter(pk=options["id"]).first()
        if found is None:
            raise CommandError(f"There is no stream {options['id']}.")
        return found

    def described(self, row: Reader) -> dict[str, Any]:
        return {"reader": row.pk}

    def do_list(self, **options: Any) -> None:
        self.show_nouns((ReaderShown.of(one) for one in readers(self.using)), COLUMNS)
