"""Defines ems_config, which lists, sets and unsets the run-time settings."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from streams.management.base import StreamsCommand
from streams.operate.changes import in_force, set_setting, unset_setting


class Command(StreamsCommand):
    help = (
        "The run-time settings. A change is in force in all processes within 5 seconds; those of"
        " threads, and installationId, when a process starts."
    )
    verbs = {
        "list": "all settings with the values in force",
        "set": "override the default of a setting",
        "unset": "let the default hold again",
    }
    everywhere = frozenset({"list"})

    def add_set_arguments(self, parser: ArgumentParser) -> None:
        self.add_unset_arguments(parser)
        text = "JSON: a number, true or false, or a text in double quotes"
        parser.add_argument("value", help=text)

    def add_unset_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="name of the setting")

    def do_list(self, **options: Any) -> None:
        columns = ("name", "value", "default", "changed_at", "meaning")
        rows = in_force(self.using)
        self.show(columns, ([row[column] for column in columns] for row in rows))

    def do_set(self, *, name: str, value: str, **options: Any) -> None:
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            text = "%r is not JSON: a number, true or false, or a text in double quotes."
            raise CommandError(text % value) from error
        set_setting(name, parsed, self.using, self.who)
        self.tell(f"{name} = {value}", name=name, value=parsed)

    def do_unset(self, *, name: str, **options: Any) -> None:
        done = unset_setting(name, self.using, self.who)
        text = "%s has its default again" if done else "%s had its default"
        self.tell(text % name, name=name, unset=done)
