"""Defines the verbs retry and skip of ems_groups, for messages that block an ordered group."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.consume.blocked import Blockade, Blocked
from streams.errors import StreamsError
from streams.management.base import StreamsCommand, add_dry_run, add_yes, line, number
from streams.models import ConsumerGroup
from streams.operate.unblock import Shown, preview, retry_now, skip


class UnblockVerbs(StreamsCommand):
    """Lets an ordered group go on, or says what would be done."""

    def add_retry_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help=_("name of the group"))
        parser.add_argument("--topic", help=_("its topic, if it is on several"))
        text = _("only this partition; by default all that are blocked")
        parser.add_argument("--partition", type=int, metavar="N", help=text)
        add_dry_run(parser)
        add_yes(parser)

    def add_skip_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help=_("name of the group"))
        parser.add_argument("--topic", help=_("its topic, if it is on several"))
        text = _("the blocked partition")
        parser.add_argument("--partition", type=int, metavar="N", required=True, help=text)
        add_dry_run(parser)
        add_yes(parser)

    def do_retry(self, *, group: str, topic: str | None, **options: Any) -> None:
        row = self.group(group, topic)

        def work(one: Blocked) -> str:
            retry_now(row, Shown.of(one), self.using)
            return _("%s: its next attempt begins now") % one.place

        self._unblock(row, work, "retried", _("Begin their next attempts now?"), **options)

    def do_skip(self, *, group: str, topic: str | None, **options: Any) -> None:
        row = self.group(group, topic)

        def work(one: Blocked) -> str:
            if skip(row, Shown.of(one), self.using, self.who):
                return _("%s: it is a dead letter now") % one.place
            return _("%s: passed; it was gone from the log, so there is no dead letter") % one.place

        self._unblock(row, work, "skipped", _("Make a dead letter of it?"), **options)

    def _unblock(
        self,
        group: ConsumerGroup,
        work: Callable[[Blocked], str],
        done: str,
        question: str,
        *,
        partition: int | None,
        dry_run: bool,
        yes: bool,
        **options: Any,
    ) -> None:
        shown = preview(group, self.using, partition)
        if not self.as_json:
            self._show(group, shown)
        outcomes: dict[int, str] = {}
        refused: dict[int, str] = {}
        if not dry_run:
            self.confirm(question, yes=yes)
            for one in shown.worst:
                try:
                    outcomes[one.partition] = work(one)
                except StreamsError as error:
                    refused[one.partition] = str(error)
        if self.as_json:
            rows = [
                {
                    **asdict(one),
                    done: one.partition in outcomes,
                    "refused": refused.get(one.partition),
                }
                for one in shown.worst
            ]
            self.write_json({"blocked": shown.partitions, "partitions": rows})
        else:
            for text in outcomes.values():
                self.stdout.write(text)
        if refused:
            raise CommandError("\n".join(refused.values()))

    def _show(self, group: ConsumerGroup, shown: Blockade) -> None:
        self.stdout.write(_("%s is blocked by:") % group)
        for one in shown.worst:
            values = {
                "place": one.place,
                "error": line(one.error),
                "attempt": one.attempt,
                "of": line(one.attempts),
                "when": _("running") if one.is_running else line(one.due_at),
                "since": line(one.since),
                "count": number(one.behind),
            }
            self.stdout.write(
                _(
                    "  %(place)s: %(error)s\n    attempt %(attempt)d of %(of)s: %(when)s; blocked"
                    " since %(since)s; behind it: %(count)s"
                )
                % values
            )
        if more := shown.unshown:
            text = ngettext("  and %d more partition", "  and %d more partitions", more)
            self.stdout.write(text % more)
