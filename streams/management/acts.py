"""Defines the verbs of commands that carry out acts."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar

from django.core.management.base import CommandError
from django.db.models import Model

from streams.management.base import StreamsCommand, add_dry_run, add_yes, line
from streams.operate.acts import ACTS
from streams.operate.acts.act import Act, Consent, Effects, arguments

AnyAct = type[Act[Any, Any]]


class ActVerbs(StreamsCommand):
    """A command with the acts of ``noun``: shown first, asked about, and done as it was shown."""

    noun: ClassVar[type[Model]]

    def add_row_arguments(self, parser: ArgumentParser) -> None:
        """Take what names a row."""
        raise NotImplementedError

    def row_named(self, options: Mapping[str, Any]) -> Any:
        """Return the one row that the arguments name; raises CommandError."""
        raise NotImplementedError

    def rows_named(self, options: Mapping[str, Any]) -> list[Any]:
        """Return the rows that they name, if they may name several; raises CommandError."""
        return [self.row_named(options)]

    def described(self, row: Any) -> dict[str, Any]:
        """Return what names the row in JSON."""
        raise NotImplementedError

    @cached_property
    def _acts(self) -> dict[str, AnyAct]:
        return {act.name: act for act in ACTS[self.noun]}

    def add_verb_arguments(self, verb: str, parser: ArgumentParser) -> None:
        act = self._acts.get(verb)
        if act is None:
            super().add_verb_arguments(verb, parser)
            return
        self.add_row_arguments(parser)
        for one in arguments(act):
            how: dict[str, Any] = {"help": str(one.help)}
            if one.kind is bool:
                how["action"] = "store_true"
            else:
                how |= {"type": one.kind, "metavar": one.metavar, "required": one.is_required}
            parser.add_argument(f"--{one.name.replace('_', '-')}", **how)
        if act.forcible:
            text = "although something is in the way, which the preview names"
            parser.add_argument("--force", action="store_true", help=text)
        if act.previewed:
            add_dry_run(parser)
            add_yes(parser)

    def run(self, **options: Any) -> None:
        act = self._acts.get(options["verb"])
        if act is None:
            super().run(**options)
        elif act.previewed:
            values = {one.name: options[one.name] for one in arguments(act)}
            given = {name: value for name, value in values.items() if value is not None}
            self._one(act.of(given), self.row_named(options), **options)
        else:
            self._each(act, self.rows_named(options))

    def _each(self, act: AnyAct, rows: Iterable[Any]) -> None:
        consent = Consent(self.who)
        done = [(row, act().carry_out(row, self.using, consent)) for row in rows]
        if self.as_json:
            told = [{**self.described(row), **asdict(found.data())} for row, found in done]
            self.write_json(told)
            return
        for row, found in done:
            self.stdout.write(f"{row}: " + ("; ".join(found.texts()) or "nothing to do"))

    def _one(
        self,
        act: Act[Any, Any],
        row: Any,
        *,
        dry_run: bool,
        yes: bool,
        force: bool = False,
        **options: Any,
    ) -> None:
        found = act.preview(row, self.using)
        if dry_run or not (yes or self.as_json):
            self._show(type(act), row, found, done=False)
        if dry_run:
            return
        if found.obstacle and not force:
            raise CommandError(_in_the_way(found))
        self.confirm(f"{act.label}: {row}?", yes=yes)
        consent = Consent(self.who, found.shown, force, self.progress)
        done = act.carry_out(row, self.using, consent)
        self.progress("")
        self._show(type(act), row, done, done=True)

    def _show(self, act: AnyAct, row: Any, found: Effects, *, done: bool) -> None:
        if self.as_json:
            self.write_json({**self.described(row), "done": done, **asdict(found.data())})
            return
        verb = "done: %s" if done else "would %s"
        self.stdout.write(f"{verb % act.name} {row}:")
        for text in found.texts() or ["nothing to do"]:
            self.stdout.write(f"  {line(text)}")
        if found.obstacle and not done:
            self.stdout.write(_in_the_way(found))


def _in_the_way(found: Effects) -> str:
    return f"{found.obstacle} To do it all the same, say --force."
