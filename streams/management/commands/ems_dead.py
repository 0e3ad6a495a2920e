from __future__ import annotations

import base64
import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams import body as bodies
from streams.management.base import StreamsCommand, add_dry_run, add_json, text
from streams.models import DeadMessage

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
        parser.add_argument("--limit", type=int, default=20, help=_("at most so many (20)"))
        add_json(parser)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int)

    def add_redrive_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int, nargs="*", help=_("ids; or use the filters"))
        parser.add_argument("--all", action="store_true", help=_("all that match the filters"))
        self.add_filter_arguments(parser)
        add_dry_run(parser)

    add_discard_arguments = add_redrive_arguments
    add_export_arguments = add_filter_arguments

    def do_list(self, *, limit: int, **options: Any) -> None:
        letters = self._matching(**options).defer("body", "traceback").order_by("-id")
        self.show(
            ("id", "topic", "group", "offset", "key", "attempts", "error", "died_at"),
            (
                (
                    d.pk,
                    d.topic.name,
                    d.group.name,
                    d.offset,
                    d.key,
                    d.attempts,
                    f"{d.error_class}: {d.error}"[:60],
                    d.died_at,
                )
                for d in letters[:limit]
            ),
        )

    def do_show(self, *, id: int, **options: Any) -> None:  # noqa: A002 - as the argument is named
        letter = DeadMessage.objects.using(self.using).filter(pk=id).first()
        if letter is None:
            raise CommandError(_("There is no dead letter %d.") % id)
        for name in ("topic", "group", "offset", "key", "attempts", "died_at", "redriven_at"):
            self.stdout.write(f"{name:12} {text(getattr(letter, name))}")
        self.stdout.write(bodies.preview(letter.body, letter.body_type, letter.size))
        self.stdout.write(letter.traceback or f"{letter.error_class}: {letter.error}")

    def do_redrive(self, **options: Any) -> None:
        self._each(DeadMessage.redrive, _("redriven"), **options)

    def do_discard(self, **options: Any) -> None:
        self._each(DeadMessage.discard, _("discarded"), **options)

    def do_export(self, **options: Any) -> None:
        for letter in self._pages(self._matching(**options)):
            self.stdout.write(json.dumps(_exported(letter), cls=DjangoJSONEncoder))

    def _each(
        self,
        verb: Callable[[DeadMessage], bool],
        done: str,
        *,
        id: list[int],  # noqa: A002 - as the argument is named
        all: bool,  # noqa: A002 - as the option is named
        dry_run: bool,
        **options: Any,
    ) -> None:
        if not id and not all:
            raise CommandError(_("Give ids, or --all with or without filters."))
        letters = self._matching(**options).waiting()
        if id:
            letters = letters.filter(pk__in=id)
        if dry_run:
            self.stdout.write(_("%d dead letters match") % letters.count())
            return
        count = sum(verb(letter) for letter in self._pages(letters.defer("body", "traceback")))
        self.stdout.write(f"{done}: {count}")

    def _pages(self, letters: Any) -> Iterator[DeadMessage]:
        """All that match now, a page at a time; what dies meanwhile is left for another call."""
        last = letters.order_by("-id").values_list("id", flat=True).first() or 0
        after = 0
        while page := list(letters.filter(pk__gt=after, pk__lte=last).order_by("id")[:PAGE]):
            yield from page
            after = page[-1].pk
            if not self.stdout.isatty():
                continue
            self.stderr.write(f"… {after}", ending="\r")

    def _matching(
        self, *, topic: str | None, group: str | None, error_class: str | None, **options: Any
    ) -> Any:
        letters = DeadMessage.objects.using(self.using).select_related("topic", "group__topic")
        wanted = {"topic__name": topic, "group__name": group, "error_class": error_class}
        return letters.filter(**{name: value for name, value in wanted.items() if value})


def _exported(letter: DeadMessage) -> dict[str, Any]:
    raw = bytes(letter.body)
    is_bytes = letter.body_type == bodies.BYTES
    return {
        "id": letter.pk,
        "topic": letter.topic.name,
        "group": letter.group.name,
        "offset": letter.offset,
        "key": letter.key,
        "tag": letter.tag,
        "headers": letter.headers or {},
        "body_type": letter.body_type,
        "body": base64.b64encode(raw).decode()
        if is_bytes
        else bodies.decode(raw, letter.body_type),
        "attempts": letter.attempts,
        "error_class": letter.error_class,
        "error": letter.error,
        "died_at": letter.died_at,
        "redriven_at": letter.redriven_at,
    }
