"""What the commands of EMS have in common."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError
from django.utils.translation import gettext as _

from streams.conf import database
from streams.errors import NotMigrated, StreamsError
from streams.transactions import tables_missing

UNKNOWN = "–"


class StreamsCommand(BaseCommand):
    """A command with ``--database`` and sub-commands; StreamsErrors are one line, not a traceback.

    ``verbs`` maps each sub-command to its help; the method ``do_VERB`` runs it.
    """

    verbs: Mapping[str, Any] = {}  # texts, translated when they are shown

    def add_arguments(self, parser: ArgumentParser) -> None:
        if not self.verbs:
            self._add_common(parser)
            return
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(self.verbs))
        for verb, text in self.verbs.items():
            sub = verbs.add_parser(verb, help=text, description=text)
            self._add_common(sub)
            getattr(self, f"add_{verb}_arguments", lambda parser: None)(sub)

    def handle(self, *args: Any, **options: Any) -> None:
        self.using = database(options["database"])
        self.as_json: bool = options.get("json", False)
        try:
            getattr(self, f"do_{options['verb']}")(**options)
        except StreamsError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            if tables_missing(error):
                raise CommandError(str(NotMigrated.on(self.using))) from error
            raise

    def _add_common(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", help=_("database alias, EMS['DATABASE'] by default"))

    def show(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """A table, or with ``--json`` a list of objects."""
        if self.as_json:
            objects = [dict(zip(columns, row, strict=True)) for row in rows]
            self.stdout.write(json.dumps(objects, cls=DjangoJSONEncoder, indent=2))
            return
        cells = [columns, *([text(value) for value in row] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        for line in cells:
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            self.stdout.write("  ".join(padded).rstrip())


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def add_dry_run(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help=_("only say what would be done"))


def text(value: Any) -> str:
    """A value as people read it; unknown is a dash, never 0."""
    if value is None:
        return UNKNOWN
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, timedelta):
        return str(timedelta(seconds=int(value.total_seconds())))
    return str(value)
