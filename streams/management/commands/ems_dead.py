"""Defines ems_dead, which lists, shows, edits, redrives, discards and exports dead letters."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from streams.consume.outcome.dead_letter import ids_named, newest, redrive
from streams.database.sql import settle as sql
from streams.database.sql.dialect import fetch
from streams.log.foreign import own_rows
from streams.log.places import LogPlace
from streams.management.base import (
    StreamsCommand,
    add_dry_run,
    add_limit,
    add_watch,
    add_yes,
    body_preview,
    body_shown,
    letters_named,
    number,
    printable,
)
from streams.models import BodyType, ConsumerGroup, DeadMessage
from streams.models.redrive import valid_rate
from streams.nouns.at_place import with_names
from streams.nouns.letter import LetterHead, LetterShown
from streams.nouns.noun import NounEncoder
from streams.operate.edited_letter import EditableContent, difference, edit_and_redrive
from streams.operate.redrives import begin

PAGE = 500
# The most letters of each group that a list by class of error reads, since no index has the class.
SEARCHED = 10_000
LETTERS = (
    *("id", "topic", "group", "partition", "offset", "key", "attempts", "failure", "died_at"),
)


class Command(StreamsCommand):
    help = "The dead letters: list, show, redrive, edit, discard and export them."
    verbs = {
        "list": "the newest dead letters",
        "show": "one dead letter with its body and traceback",
        "redrive": "give the messages to their groups again",
        "edit": "change one, and give it to its group again",
        "discard": "delete them for good",
        "export": "write them as JSON lines",
    }
    everywhere = frozenset({"list"})

    def add_filter_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", help="only of this topic")
        parser.add_argument("--group", help="only of this group")
        parser.add_argument("--error-class", help="only with this class of error")

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        self.add_filter_arguments(parser)
        add_limit(parser, 20)
        add_watch(parser)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        self._add_name(parser)

    def add_redrive_arguments(self, parser: ArgumentParser) -> None:
        self.add_choice_arguments(parser)
        text = "at most this many a second; consumers or Celery beat carry it out"
        parser.add_argument("--rate", type=float, metavar="N", help=text)

    def add_choice_arguments(self, parser: ArgumentParser) -> None:
        text = "ids, or places such as orders/2@1200; or use --all"
        parser.add_argument("id", type=letters_named, nargs="*", help=text)
        parser.add_argument("--all", action="store_true", help="all that match the filters")
        self.add_filter_arguments(parser)
        add_limit(parser)
        add_dry_run(parser)

    def add_edit_arguments(self, parser: ArgumentParser) -> None:
        self._add_name(parser)
        parser.add_argument("--body", help="the new body; @FILE reads it from a file")
        parser.add_argument("--body-type", choices=BodyType.values, help="its type; else as before")
        parser.add_argument("--key", help="the new key; empty: none")
        parser.add_argument("--tag", help="the new tag; empty: none")
        parser.add_argument("--headers", help="a JSON object with all headers; empty: none")
        add_dry_run(parser)
        add_yes(parser)

    def _add_name(self, parser: ArgumentParser) -> None:
        text = "its id, or its place, such as orders/2@1200, if one letter alone is there"
        parser.add_argument("id", type=letters_named, help=text)

    def add_discard_arguments(self, parser: ArgumentParser) -> None:
        self.add_choice_arguments(parser)
        add_yes(parser)

    def add_export_arguments(self, parser: ArgumentParser) -> None:
        self.add_filter_arguments(parser)
        parser.add_argument("--redriven", action="store_true", help="redriven ones, too")
        add_limit(parser)

    def named_topic(self, options: Mapping[str, Any]) -> str | None:
        named = options.get("id")
        places = named if isinstance(named, list) else [named]
        topics = (one.topic for one in places if isinstance(one, LogPlace))
        return next(topics, None) or super().named_topic(options)

    def do_list(self, *, limit: int, error_class: str | None, **options: Any) -> None:
        groups = self._groups(**options)
        # With an error class, the newest SEARCHED letters are read; others are not found.
        searched = limit if error_class is None else SEARCHED
        found = [
            letter
            for group in groups.values()
            for letter in self._letters(newest(group, searched, self.using), error_class).defer(
                "body", "traceback"
            )
        ]
        found.sort(key=lambda letter: letter.pk, reverse=True)
        shown = (LetterHead.of(letter) for letter in with_names(found[:limit], self.using))
        self.show_nouns(shown, LETTERS)

    def do_show(
        self,
        *,
        id: int | LogPlace,  # noqa: A002 - as the argument is named
        **options: Any,
    ) -> None:
        letter = self._letter(id)
        traceback = letter.traceback or f"{letter.error_class}: {letter.error}"
        texts = {"body": body_preview(letter), "traceback": traceback}
        self.show_noun(_shown(letter), has_body="", damaged="", **texts)

    def do_redrive(self, *, rate: float | None, **options: Any) -> None:
        if rate is None:
            self._each(redrive, "redriven", **options)
        else:
            self._begin(rate, **options)

    def _begin(
        self,
        rate: float,
        *,
        id: list[int | LogPlace],  # noqa: A002 - as the argument is named
        all: bool,  # noqa: A002 - as the option is named
        limit: int | None,
        dry_run: bool,
        error_class: str | None,
        **options: Any,
    ) -> None:
        """Begin to redrive at a rate; a step carries it out."""
        if bool(id) == all:
            raise CommandError("Give ids, or --all with or without filters.")
        valid_rate(rate)
        groups = self._groups(**options)
        ids = None
        if id:
            letters = self._letters(ids_named(id, self.using), error_class).waiting()
            found = letters.filter(group__in=groups).values_list("pk", flat=True)
            ids = list(found)[:limit]
        if dry_run:
            self.tell("would be begun", dry_run=True, rate=rate, ids=ids, limit=limit)
            return
        row = begin(
            groups.values(),
            self.using,
            rate=rate,
            who=self.who,
            error_class=error_class or "",
            ids=ids,
            limit=limit,
        )
        text = f"begun: redrive {row}; see ems_redrives"
        self.tell(text, redrive=row.pk, rate=rate)

    def do_edit(
        self,
        *,
        id: int | LogPlace,  # noqa: A002 - as the argument is named
        dry_run: bool,
        yes: bool,
        **options: Any,
    ) -> None:
        letter = self._letter(id)
        before = EditableContent.of(letter)
        names = ("body", "body_type", "key", "tag", "headers")
        given = {name: options[name] for name in names if options[name] is not None}
        if not given:
            raise CommandError("Say what to change: --body, --key, --tag or --headers.")
        if given.get("body", "").startswith("@"):
            given["body"] = self._read(given["body"][1:])
        content = replace(before, **given)
        lines = list(difference(before, EditableContent.of(content.checked(letter))))
        if not lines:
            raise CommandError("Nothing is changed. To hand it over as it is, redrive it.")
        if not self.as_json:
            self.stdout.write(printable("\n".join(lines)))
        if not dry_run:
            self.confirm(f"Give it to {letter.group} like this?", yes=yes)
            if not edit_and_redrive(letter, content, self.who):
                raise CommandError(
                    "Nothing was done: it was redriven, edited or deleted meanwhile."
                )
        text = "would be edited: dead letter %d" if dry_run else "edited: dead letter %d"
        self.tell(text % letter.pk, id=letter.pk, dry_run=dry_run, difference=lines)

    def _read(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise CommandError(f"{path} cannot be read: {error}") from error

    def _letter(self, name: int | LogPlace) -> DeadMessage:
        letters = DeadMessage.objects.using(self.using).select_related("group__topic")
        rows = own_rows(letters, self.using).filter(pk__in=ids_named([name], self.using))
        found = with_names(rows.order_by("-pk"), self.using)
        # At a place, what was redriven is history.
        found = [letter for letter in found if letter.redriven_at is None] or found[:1]
        if not found:
            raise CommandError(f"There is no dead letter {name}.")
        if len(found) > 1:
            ids = ", ".join(f"{one.pk} ({one.group})" for one in found)
            raise CommandError(
                f"There are several dead letters at {name}: name one by its id, {ids}."
            )
        return found[0]

    def do_discard(self, **options: Any) -> None:
        self._each(DeadMessage.discard, "discarded", asks=options["all"], **options)

    def do_export(self, *, limit: int | None, redriven: bool, **options: Any) -> None:
        groups = self._groups(**options)
        pages = self._all() if redriven else self._waiting(groups)
        letters = chain.from_iterable(
            with_names(self._letters(page, options["error_class"]), self.using) for page in pages
        )
        for letter in islice((one for one in letters if one.group_id in groups), limit):
            self.stdout.write(json.dumps(_shown(letter), cls=NounEncoder, ensure_ascii=False))

    def _each(
        self,
        verb: Callable[[DeadMessage], bool],
        done: str,
        /,
        *,
        id: list[int | LogPlace],  # noqa: A002 - as the argument is named
        all: bool,  # noqa: A002 - as the option is named
        limit: int | None,
        dry_run: bool,
        error_class: str | None,
        asks: bool = False,
        yes: bool = False,
        **options: Any,
    ) -> None:
        """Apply ``verb`` to each letter in its own transaction.

        If the command is stopped, what is done stays done, and it can be repeated for the rest.
        """
        if bool(id) == all:
            raise CommandError("Give ids, or --all with or without filters.")
        groups = self._groups(**options)
        ids = ids_named(id, self.using)

        def chosen() -> Iterator[DeadMessage]:
            pages = batched(ids) if id else self._waiting(groups)
            letters = chain.from_iterable(
                self._letters(page, error_class)
                .waiting()
                .filter(group__in=groups)
                .only("group", "partition", "offset", "attempts", "edited_at")
                for page in pages
            )
            return islice(letters, limit)

        if asks and not (dry_run or yes):
            found = sum(1 for _letter in chosen()) if self.can_ask else 0
            letters = "dead letter" if found == 1 else "dead letters"
            self.confirm(f"Delete {number(found)} {letters} for good?", yes=yes)
        count = left = 0
        for letter in chosen():
            if dry_run or verb(letter):
                count += 1
            else:  # another process has handled it meanwhile
                left += 1
            if not (count + left) % PAGE:
                self.progress(f"{done}: {number(count)}")
        self.progress("")
        if id and limit is None:
            left = len(ids) - count
        text = f"{'would be ' if dry_run else ''}{done}: {number(count)}"
        if left:
            text += f"; left out: {number(left)} (redriven already, gone, or behind an edited one)"
        self.tell(text, **{"dry_run": dry_run, done: count, "left_out": left})

    def _letters(self, ids: Sequence[int], error_class: str | None) -> Any:
        letters = DeadMessage.objects.using(self.using).filter(pk__in=ids).order_by("pk")
        return letters.filter(error_class=error_class) if error_class else letters

    def _waiting(self, groups: Iterable[int]) -> Iterator[list[int]]:
        """Yield the ids of all letters that wait now, in pages; later ones are left out."""
        upto = DeadMessage.objects.using(self.using).newest_id()
        for group in groups:
            yield from self._pages(sql.WAITING_LETTERS, group, upto=upto)

    def _all(self) -> Iterator[list[int]]:
        """Yield the ids of all letters, waiting or redriven, in pages."""
        newest = DeadMessage.objects.using(self.using).newest_id()
        yield from self._pages(sql.ALL_LETTERS, upto=newest)

    def _pages(
        self, statement: Mapping[str, str], *parameters: int, upto: int
    ) -> Iterator[list[int]]:
        vendor, after = connections[self.using].vendor, 0
        while rows := fetch(self.using, statement[vendor], [*parameters, after, upto, PAGE]):
            yield [pk for (pk,) in rows]
            after = rows[-1][0]

    def _groups(
        self, *, topic: str | None, group: str | None, **options: Any
    ) -> dict[int, ConsumerGroup]:
        return {row.pk: row for row in self.groups(group, topic)}


def batched(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + PAGE] for start in range(0, len(ids), PAGE))


def _shown(letter: DeadMessage) -> LetterShown:
    return LetterShown.of(letter, **body_shown(letter))
