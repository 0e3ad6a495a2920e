"""Defines ems_messages, which lists, shows, traces and cancels messages."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from streams import cancel
from streams.durations import precise
from streams.errors import StreamsError
from streams.log.places import LogPlace, message_named
from streams.log.search import (
    STEPS,
    Criteria,
    not_indexed,
    parse_position,
    position_text,
    search,
)
from streams.management.base import (
    UNKNOWN,
    StreamsCommand,
    add_limit,
    add_watch,
    body_preview,
    body_shown,
    line,
    named,
    number,
)
from streams.models import Message, Partition
from streams.nouns.message import GroupWay, MessageHead, MessageShown, Way
from streams.observe.trace import trace
from streams.operate.target import Target

COLUMNS = ("message_id", "partition", "offset", "key", "tag", "size", "created_at", "sequenced_at")
ATTEMPTS = ("attempt", "client", "thread", "claimed_at", "waited", "took", "error")


class Command(StreamsCommand):
    help = "The messages: list them, show one, trace its way through every group, cancel one."
    verbs = {
        "list": "the newest messages of a topic",
        "show": "one message with its body",
        "trace": "what every group has done with one message",
        "cancel": "take back a delayed message that is not visible yet",
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help="name of the topic")
        parser.add_argument(
            "--since", type=instant, metavar="TIME", help="in the log at this time or later"
        )
        parser.add_argument(
            "--until", type=instant, metavar="TIME", help="in the log before this time"
        )
        parser.add_argument("--tag", help="only messages with this tag")
        parser.add_argument("--key", help="only messages with this key")
        parser.add_argument("--partition", type=int, metavar="N", help="only of this partition")
        parser.add_argument("--resume", metavar="POSITION", help="go on where a list has ended")
        add_limit(parser, 20)
        add_watch(parser)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message", type=named, help="its id, or its place: orders/0@12")

    add_trace_arguments = add_show_arguments

    def add_cancel_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message", type=named, help="its id")

    def do_list(
        self,
        *,
        topic: str,
        since: datetime | None,
        until: datetime | None,
        tag: str | None,
        key: str | None,
        partition: int | None,
        resume: str | None,
        limit: int,
        **options: Any,
    ) -> None:
        rows = Partition.objects.using(self.using).select_related("topic")
        partitions = list(rows.filter(topic__name=topic))
        if not partitions:
            raise CommandError(f"There is no topic {topic!r}.")
        chosen = [one for one in partitions if partition in (None, one.number)]
        if not chosen:
            raise CommandError(f"{topic} has no partition {partition}.")
        start = None if resume is None else parse_position(resume)
        criteria = Criteria(since, until, tag, key)
        messages: list[Message] = []
        # Who watches asks again by itself.
        for _step in range(1 if options["watch"] else STEPS):
            found = search(chosen, criteria, limit - len(messages), self.using, start)
            messages += found.messages
            start = found.then
            if found.is_complete or len(messages) >= limit:
                break
            self.progress(
                f"found {len(messages)}, {number(found.left)} messages are left to be searched"
            )
        self.progress("")
        self.show_nouns((MessageHead.of(one) for one in messages), COLUMNS)
        if not found.is_complete:
            text = "Older ones are not searched yet: go on with --resume %s"
            self.stderr.write(text % position_text(found.then), style_func=str)
            if key is not None and not_indexed(chosen):
                text = "An index finds keys at once: python manage.py ems_topics index %s"
                self.stderr.write(text % topic, style_func=str)

    def do_show(self, *, message: int | LogPlace, **options: Any) -> None:
        row = self._message(message)
        shown = MessageShown.of(row, **body_shown(row))
        self.show_noun(shown, has_body="", damaged="", body=body_preview(row))

    def do_trace(self, *, message: int | LogPlace, **options: Any) -> None:
        row = self._message(message)
        way = Way(message=MessageHead.of(row), groups=[GroupWay.of(one) for one in trace(row)])
        if self.as_json:
            self.write_json(way)
            return
        self.stdout.write(
            f"{row.partition}@{UNKNOWN if row.offset is None else row.offset}, sent by"
            f" {line(row.producer)} at {line(row.created_at)}"
        )
        rows: list[tuple[Any, ...]] = []
        for group in way.groups:
            rows.append((group.group, group.state, *[None] * len(ATTEMPTS)))
            for one in group.attempts:
                spans = (one.waited_seconds, one.took_seconds)
                rows.append(
                    (
                        *("", f"{one.kind}: {one.outcome}"),
                        *(one.attempt, one.client, one.thread, one.claimed_at),
                        *(None if span is None else precise(span) for span in spans),
                        one.error,
                    )
                )
        self.show(("group", "state", *ATTEMPTS), rows)

    def do_cancel(self, *, message: int | LogPlace, database: str | None, **options: Any) -> None:
        # What has a place has an offset, so it is visible.
        pk = message if isinstance(message, int) else self._message(message).pk
        outcome = cancel(pk, using=database)
        if outcome == "visible":
            raise CommandError(f"Message {pk} is visible already, or was not delayed.")
        if outcome == "unknown":
            raise CommandError(f"There is no message {pk}: purged, or never sent.")
        self.tell(f"cancelled message {pk}", message_id=pk, cancelled=True)

    def named_topic(self, options: Mapping[str, Any]) -> str | None:
        named = options.get("message")
        return named.topic if isinstance(named, LogPlace) else super().named_topic(options)

    def _message(self, name: int | LogPlace) -> Message:
        found = message_named(name, self.using)
        if found is None:
            raise CommandError(f"There is no message {name}: purged, or never sent.")
        return found


def instant(text: str) -> datetime:
    """Return the time of an option such as ``2026-11-20T10:00Z``."""
    try:
        target = Target.parse(text)
    except StreamsError as error:
        raise ArgumentTypeError(str(error)) from error
    if target.time is None:
        raise ArgumentTypeError(f"{text!r} is not a time: say it as in 2026-11-20T10:00Z.")
    return target.time
