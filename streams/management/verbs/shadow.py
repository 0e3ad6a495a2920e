"""Defines the verbs shadows and diff of ems_groups, and the shadow replay of the verb replay."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.consume.registry import autodiscover, find
from streams.management.base import StreamsCommand, add_limit, line, number, printable
from streams.models import ConsumerGroup, ShadowRun
from streams.operate.replay import Span
from streams.operate.shadow import runs
from streams.operate.shadow.run import check, shadow
from streams.operate.shadow.undone import Undone

# How many differences diff prints, and how many lines of each.
LIMIT = 20
LINES = 10


class ShadowVerbs(StreamsCommand):
    """Runs shadow replays of one group, lists them, and compares two."""

    def add_shadows_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--delete", metavar="NAME", help=_("delete this one"))

    def add_diff_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("a", metavar="A", help=_("name of a shadow replay"))
        parser.add_argument("b", metavar="B", help=_("name of another one, of the same messages"))
        parser.add_argument(
            "--ignore",
            action="append",
            default=[],
            metavar="TABLE.COLUMN",
            help=_("do not compare these values; several times for several columns"),
        )
        add_limit(parser, LIMIT)

    def run_shadow(self, group: ConsumerGroup, found: Sequence[Span], name: str) -> None:
        check(name)
        autodiscover()
        registration = find(group.topic.name, group.name)
        if registration is None:
            raise CommandError(_("This project has no consumer for %s.") % group)
        self._warn(registration.name)
        total = number(sum(map(len, found)))

        def tell(messages: int) -> None:
            self.progress(f"{number(messages)}/{total}")

        run = shadow(group, registration, found, name, by=self.who, using=self.using, tell=tell)
        self.progress("")
        text = ngettext(
            "%(name)s: %(count)s message of %(group)s, %(failed)s failed; all is undone",
            "%(name)s: %(count)s messages of %(group)s, %(failed)s failed; all is undone",
            run.messages,
        )
        counts = {"messages": run.messages, "failed": run.failed, "missing": run.missing}
        values = {"name": run.name, "group": group.name}
        self.tell(
            text % {**values, "count": number(run.messages), "failed": number(run.failed)},
            **{"shadow": run.name, "group": group.name, "topic": group.topic.name, **counts},
        )

    def do_shadows(self, *, delete: str | None, **options: Any) -> None:
        if delete is not None:
            rows = sum(runs.delete(runs.find(delete, self.using), self.using)) - 1
            text = ngettext(
                "deleted %(name)s: %(count)s call", "deleted %(name)s: %(count)s calls", rows
            )
            values = {"name": delete, "count": number(rows)}
            self.tell(text % values, deleted=delete, calls=rows)
            return
        every = ShadowRun.objects.using(self.using).order_by("pk")
        self.show(
            ("name", "group", "topic", "messages", "failed", "code", "started", "by", "state"),
            (
                (
                    *(run.name, run.group, run.topic, run.messages, run.failed, run.code or None),
                    *(run.started_at, run.started_by, run.state),
                )
                for run in every
            ),
        )

    def do_diff(self, *, a: str, b: str, ignore: list[str], limit: int, **options: Any) -> None:
        before, after = (runs.find(name, self.using) for name in (a, b))
        shown: list[runs.Difference] = []
        total = 0
        for total, found in enumerate(
            runs.differences(before, after, self.using, set(ignore)), start=1
        ):
            if total <= limit:
                shown.append(found)
        if self.as_json:
            self.write_json({"differences": total, "shown": [_described(one) for one in shown]})
        else:
            self._print(before.topic, shown, total)
        if total:
            self.stdout.flush()
            sys.exit(1)

    def _print(self, topic: str, shown: Sequence[runs.Difference], total: int) -> None:
        for one in shown:
            last = f"-{one.last}" if one.last > one.first else ""
            self.stdout.write(f"{topic}/{one.partition}@{one.first}{last} {one.what}")
            changes, count = one.changes(LINES)
            for sign, text in changes:
                self.stdout.write(f"  {sign} {line(text)}")
            if count > len(changes):
                self.stdout.write("  " + _("… and %s more lines") % number(count - len(changes)))
        text = ngettext("%s difference", "%s differences", total) % number(total)
        if total > len(shown):
            text += _(", of which the first %s are shown") % number(len(shown))
        self.stdout.write(text)

    def _warn(self, handler: str) -> None:
        """Say what happens for good, before it happens."""
        held = ", ".join(Undone.databases(self.using))
        self.stderr.write(
            _(
                "%(handler)s runs now. Undone is what it writes to these databases: %(held)s."
                " What it does elsewhere happens: mail, HTTP, Redis and other caches, tasks of"
                " Celery, files."
            )
            % {"handler": handler, "held": held}
        )
        self.stderr.flush()


def _described(one: runs.Difference) -> dict[str, Any]:
    changes, _count = one.changes(LINES)
    return {
        "partition": one.partition,
        "from": one.first,
        "to": one.last + 1,
        "what": one.what,
        "a": [printable(text) for sign, text in changes if sign == "-"],
        "b": [printable(text) for sign, text in changes if sign == "+"],
    }
