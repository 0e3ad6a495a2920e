"""Defines the verb set of ems_topics and ems_groups."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db.models import BooleanField, Field, Model

from streams.durations import parse_duration
from streams.management.base import StreamsCommand
from streams.operate.changes import CHANGEABLE, change

NONE = "none"
FLAGS = {"yes": True, "no": False}
# The fields that are seconds: they take 5m and 2d, too.
SECONDS = {"retention_seconds", "consume_timeout"}


class ChangeVerb(StreamsCommand):
    """The verb that sets fields of a topic or a group: those that its page in the admin offers."""

    def add_changes(self, parser: ArgumentParser, model: type[Model]) -> None:
        """Add an option for each field that may be changed."""
        for name in CHANGEABLE[model]:
            field: Any = model._meta.get_field(name)
            flag: dict[str, Any] = {}
            if isinstance(field, BooleanField):
                flag["choices"] = FLAGS
            elif field.choices:
                flag["choices"] = [value for value, _label in field.choices]
            else:
                flag["metavar"] = "DURATION" if name in SECONDS else "VALUE"
            text = str(field.verbose_name)
            if field.null or (field.blank and not flag.get("choices")):
                text += f" ({NONE} removes it)"
            parser.add_argument(f"--{name.replace('_', '-')}", help=text.replace("%", "%%"), **flag)

    def apply_changes(self, row: Any, **options: Any) -> None:
        """Set what the options say, and print it; without any, print what is set."""
        fields = [row._meta.get_field(name) for name in CHANGEABLE[type(row)]]
        given = {f.name: options[f.name] for f in fields if options[f.name] is not None}
        values = {
            field.name: _value(field, given[field.name]) for field in fields if field.name in given
        }
        if not values:
            now = {field.name: field.value_from_object(row) for field in fields}
            self.show_one(now if self.as_json else {n: _shown(value) for n, value in now.items()})
            return
        changed = change(row, values, self.using, self.who)
        self._tell_changes(row, changed)

    def _tell_changes(self, row: Any, changed: Mapping[str, tuple[Any, Any]]) -> None:
        if self.as_json:
            described = {name: {"from": old, "to": new} for name, (old, new) in changed.items()}
            self.write_json({"of": str(row), "changed": described})
            return
        for name, (old, new) in changed.items():
            self.stdout.write(f"{row}: {name} was {_shown(old)}, is {_shown(new)}")
        if not changed:
            self.stdout.write(f"{row}: that is set already")


def _value(field: Field[Any, Any], text: str) -> Any:
    """Return what the model field gets; the model says whether it is valid."""
    if isinstance(field, BooleanField):
        return FLAGS[text]
    if text == NONE and field.null:
        return None
    if text == NONE and field.blank:
        return ""
    if field.name not in SECONDS:
        return text
    duration = parse_duration(text)
    if duration.microseconds:
        raise CommandError(f"{field.name} takes whole seconds, not {text}.")
    return int(duration.total_seconds())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None or value == "" else str(value)
