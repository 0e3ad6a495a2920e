from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams import body as bodies
from streams.management.base import Encoder, StreamsCommand, add_dry_run, add_limit, portable
from streams.models import ConsumerGroup, DeadMessage

PAGE = 500


class Command(StreamsCommand):
    help = "The dead letters: list, show, redrive, discard and export them."
    verbs = {
        "list": gettext_lazy("the newest dead letters"),
        "show": gettext_lazy("one dead letter with its body and traceback"),
        "redrive": gettext_lazy("have their groups see the messages again"),
        "discard": gettext_lazy("delete them for good"),
        "export": gettext_lazy("write them as JSON lines"),
    }

    def add_filter_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", help=_("only of this topic"))
        parser.add_argument("--group", help=_("only of this group"))
        parser.add_argument("--error-class", help=_("only with this class of error"))

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        self.add_filter_arguments(parser)
        parser.add_argument("--redriven", action="store_true", help=_("redriven ones, too"))
        add_limit(parser, 20)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int)

    def add_redrive_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int, nargs="*", help=_("ids; or use --all"))
        parser.add_argument("--all", action="store_true", help=_("all that match the filters"))
        self.add_filter_arguments(parser)
        add_limit(parser)
        add_dry_run(parser)

    add_discard_arguments = add_redrive_arguments

    def add_export_arguments(self, parser: ArgumentParser) -> None:
        self.add_filter_arguments(parser)
        parser.add_argument("--redriven", action="store_true", help=_("redriven ones, too"))
        add_limit(parser)

    def do_list(self, *, limit: int, redriven: bool, **options: Any) -> None:
        groups = self._groups(**options)
        found: list[DeadMessage] = []
        for group in groups.values():
            letters = self._of(group, redriven=redriven, **options).defer("body", "traceback")
            found += letters.order_by("-id")[:limit]
        found.sort(key=lambda letter: letter.pk, reverse=True)
        self.show(
            ("id", "topic", "group", "offset", "key", "attempts", "error", "died_at", "redriven"),
            (
                (
                    letter.pk,
                    groups[letter.group_id].topic.name,
                    groups[letter.group_id].name,
                    letter.offset,
                    letter.key,
                    letter.attempts,
                    f"{letter.error_class}: {letter.error}"[:60],
                    letter.died_at,
                    letter.redriven_at,
                )
                for letter in found[:limit]
            ),
        )

    def do_show(self, *, id: int, **options: Any) -> None:  # noqa: A002 - as the argument is named
        letters = DeadMessage.objects.using(self.using).select_related("group__topic")
        letter = letters.filter(pk=id).first()
        if letter is None:
            raise CommandError(_("There is no dead letter %d.") % id)
        values = _exported(letter, letter.group)
        traceback = letter.traceback or f"{letter.error_class}: {letter.error}"
        if not self.as_json:
            del values["body"], values["traceback"]
        preview = bodies.preview(letter.body, letter.body_type, letter.size)
        self.show_one(values, preview, traceback)

    def do_redrive(self, **options: Any) -> None:
        self._each(DeadMessage.redrive, "redriven", **options)

    def do_discard(self, **options: Any) -> None:
        self._each(DeadMessage.discard, "discarded", **options)

    def do_export(self, *, limit: int | None, redriven: bool, **options: Any) -> None:
        groups = self._groups(**options)
        for letter in islice(self._pages(groups, redriven=redriven, **options), limit):
            exported = _exported(letter, groups[letter.group_id])
            self.stdout.write(json.dumps(exported, cls=Encoder, ensure_ascii=False))

    def _each(
        self,
        verb: Callable[[DeadMessage], bool],
        done: str,
        /,
        *,
        id: list[int],  # noqa: A002 - as the argument is named
        all: bool,  # noqa: A002 - as the option is named
        limit: int | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        """One transaction a letter: broken off, what is done is done, and the rest can be asked
        for again."""
        if bool(id) == all:
            raise CommandError(_("Give ids, or --all with or without filters."))
        groups = self._groups(**options)
        if dry_run:
            matching = sum(self._of(g, ids=id, **options).count() for g in groups.values())
            count = min(matching, limit or matching)
            self.tell(
                _("would be %(done)s: %(count)d") % {"done": done, "count": count},
                **{"dry_run": True, done: count},
            )
            return
        count = left = 0
        for letter in islice(self._pages(groups, ids=id, light=True, **options), limit):
            if verb(letter):
                count += 1
            else:  # somebody else was faster
                left += 1
            if not (count + left) % PAGE:
                self.progress(f"{done}: {count}")
        self.progress("")
        if id and limit is None:
            left = len(set(id)) - count
        text = f"{done}: {count}"
        if left:
            text += _("; left out: %d (redriven already, or gone)") % left
        self.tell(text, **{"dry_run": False, done: count, "left_out": left})

    def _pages(
        self, groups: dict[int, ConsumerGroup], /, *, light: bool = False, **options: Any
    ) -> Iterator[DeadMessage]:
        """All that match now, a page at a time; what dies meanwhile is left for another call."""
        newest = DeadMessage.objects.using(self.using).order_by("-id").values_list("pk", flat=True)
        upto = newest.first() or 0
        for group in groups.values():
            letters = self._of(group, **options).filter(pk__lte=upto).order_by("pk")
            if light:
                letters = letters.only("pk", "group", "partition", "offset", "attempts")
            after = 0
            while page := list(letters.filter(pk__gt=after)[:PAGE]):
                yield from page
                after = page[-1].pk

    def _groups(
        self, *, topic: str | None, group: str | None, **options: Any
    ) -> dict[int, ConsumerGroup]:
        return {row.pk: row for row in self.groups(group, topic)}

    def _of(
        self,
        group: ConsumerGroup,
        /,
        *,
        error_class: str | None,
        redriven: bool = False,
        ids: list[int] | None = None,
        **options: Any,
    ) -> Any:
        """One group's letters: those that wait are in the order of an index."""
        letters = DeadMessage.objects.using(self.using).filter(group=group.pk)
        if not redriven:
            letters = letters.waiting()
        if error_class:
            letters = letters.filter(error_class=error_class)
        return letters.filter(pk__in=ids) if ids else letters


def _exported(letter: DeadMessage, group: ConsumerGroup) -> dict[str, Any]:
    names = ("offset", "message_id", "key", "tag", "headers", "producer", "sent_at", "body_type")
    more = ("size", "attempts", "error_class", "error", "died_at", "redriven_at", "traceback")
    return {
        "id": letter.pk,
        "topic": group.topic.name,
        "group": group.name,
        **{name: getattr(letter, name) for name in (*names, *more)},
        "body": portable(letter),
    }
