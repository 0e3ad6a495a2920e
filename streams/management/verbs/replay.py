"""Defines the verbs replay and replays of ems_groups."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.errors import InvalidTarget
from streams.management.base import StreamsCommand, add_dry_run, add_watch, named
from streams.management.base import number as count
from streams.models import ConsumerGroup
from streams.operate.replay import Span, cancel, replays, span_of, spans, start
from streams.operate.target import Target


class ReplayVerbs(StreamsCommand):
    """Starts replays to one group, shows them and cancels them."""

    def add_span_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help=_("name of the group"))
        parser.add_argument("--topic", help=_("its topic, if it is on several"))
        parser.add_argument("--partition", type=int, metavar="N", help=_("only this partition"))
        text = _("an offset, orders/2@1200 (that partition alone), or a time (2026-11-20T10:00Z)")
        parser.add_argument("--from", metavar="WHERE", help=text)
        parser.add_argument("--to", metavar="WHERE", help=_("the same; it is not included itself"))
        text = _("this one message: its id, or its place, such as orders/2@1200")
        parser.add_argument("--message", type=named, metavar="MESSAGE", help=text)

    def add_replay_arguments(self, parser: ArgumentParser) -> None:
        self.add_span_arguments(parser)
        add_dry_run(parser)

    def add_replays_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", nargs="?", help=_("only of this group"))
        parser.add_argument("--topic", help=_("only on this topic"))
        parser.add_argument("--cancel", type=int, metavar="NUMBER", help=_("end this replay"))
        add_watch(parser)

    def do_replay(
        self,
        *,
        group: str,
        topic: str | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        row = self.group(group, topic)
        found = self.spans(row, **options)
        number = None if dry_run else start(row, found, self.using)
        messages = sum(map(len, found))
        values = {"spans": ", ".join(map(str, found)), "group": row.name, "count": count(messages)}
        if number is None:
            text = ngettext(
                "would replay %(count)s message to %(group)s: %(spans)s",
                "would replay %(count)s messages to %(group)s: %(spans)s",
                messages,
            )
        else:
            text = ngettext(
                "replay %(number)d: %(count)s message to %(group)s: %(spans)s",
                "replay %(number)d: %(count)s messages to %(group)s: %(spans)s",
                messages,
            )
        self.tell(
            text % {**values, "number": number},
            replay=number,
            group=row.name,
            topic=row.topic.name,
            messages=messages,
            spans=[_described(span) for span in found],
        )

    def do_replays(
        self, *, group: str | None, topic: str | None, cancel: int | None, **options: Any
    ) -> None:
        if cancel is not None:
            self._cancel(group, topic, cancel)
            return
        self.show(
            ("group", "topic", "replay", "partition", "from", "to", "given_out", "open", "state"),
            (
                (
                    replay.cursor.group.name,
                    replay.cursor.group.topic.name,
                    replay.number,
                    replay.span.partition.number,
                    replay.span.first,
                    replay.span.end,
                    replay.given_out,
                    replay.open,
                    replay.state,
                )
                for replay in replays(self.groups(group, topic), self.using)
            ),
        )

    def _cancel(self, group: str | None, topic: str | None, number: int) -> None:
        if group is None:
            raise CommandError(_("Name the group: each group has its own numbers."))
        row = self.group(group, topic)
        left = cancel(row, number, self.using)
        values = {"group": row.name, "number": number, "left": count(left)}
        text = ngettext(
            "cancelled replay %(number)d to %(group)s: %(left)s message not given out",
            "cancelled replay %(number)d to %(group)s: %(left)s messages not given out",
            left,
        )
        self.tell(text % values, cancelled=number, group=row.name, left_out=left)

    def spans(self, group: ConsumerGroup, **options: Any) -> list[Span]:
        first, end, message = options["from"], options["to"], options["message"]
        if message is not None and first is None and end is None:
            return span_of(group, message, self.using)
        if message is not None or first is None or end is None:
            raise CommandError(_("Give --from and --to, or --message."))
        number = options["partition"]
        return spans(group, _absolute(first), _absolute(end), self.using, number=number)


def _absolute(text: str) -> Target:
    target = Target.parse(text)
    if not target.is_absolute:
        raise InvalidTarget(
            _("A part of the log is from an offset or a time to another, not %r.") % text
        )
    return target


def _described(span: Span) -> dict[str, Any]:
    return {"partition": span.partition.number, "from": span.first, "to": span.end}
