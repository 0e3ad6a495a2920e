"""Defines ems_messages, which lists, shows, traces and cancels messages."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams import body as bodies
from streams import cancel
from streams.durations import precise
from streams.log.foreign import own_rows
from streams.management.base import (
    StreamsCommand,
    add_limit,
    fits,
    line,
    number,
    portable,
    positive,
)
from streams.models import IMMEDIATE, Message, Partition
from streams.observe.trace import trace

# A search by key reads this many of the newest messages of each partition, and says so.
SEARCHED = 100_000


class Command(StreamsCommand):
    help = "The messages: list them, show one, trace its way through every group, cancel one."
    verbs = {
        "list": gettext_lazy("the newest messages of a topic"),
        "show": gettext_lazy("one message with its body"),
        "trace": gettext_lazy("what every group has done with one message"),
        "cancel": gettext_lazy("take back a delayed message that is not visible yet"),
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help=_("name of the topic"))
        parser.add_argument("--key", help=_("only messages with this key"))
        add_limit(parser, 20)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message", help=_("its id, or its place: orders/0@12"))

    add_trace_arguments = add_show_arguments

    def add_cancel_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message", type=positive, help=_("its id"))

    def do_list(self, *, topic: str, key: str | None, limit: int, **options: Any) -> None:
        partitions = list(Partition.objects.using(self.using).filter(topic__name=topic))
        if not partitions:
            raise CommandError(_("There is no topic %r.") % topic)
        found = [
            (message, partition)
            for partition in partitions
            for message in self._newest(partition, key, limit)
        ]
        found.sort(key=lambda pair: pair[0].pk, reverse=True)
        columns = ("key", "tag", "size", "created_at", "sequenced_at")
        self.show(
            ("id", "partition", "offset", *columns),
            (
                (m.pk, partition.number, m.offset, *(getattr(m, name) for name in columns))
                for m, partition in found[:limit]
            ),
        )

    def _newest(self, partition: Partition, key: str | None, limit: int) -> list[Message]:
        """Return the newest messages of the inbox and the log, in the orders of their indexes."""
        messages = Message.objects.using(self.using).filter(partition=partition.pk).defer("body")
        log = messages.filter(offset__isnull=False)
        if key is not None:
            messages = messages.filter(key=key)
            first = partition.next_offset - SEARCHED
            if first > partition.first_offset:
                self.stderr.write(_("searched the newest %s messages") % number(SEARCHED))
            log = log.filter(key=key, offset__gte=first)
        inbox = messages.filter(offset=None).order_by("-due_at", "-id")
        return [*inbox[:limit], *log.order_by("-offset")[:limit]]

    def do_show(self, *, message: str, **options: Any) -> None:
        row = self._message(message)
        names = ("offset", "key", "tag", "headers", "producer", "created_at")
        values = {
            "id": row.pk,
            "partition": str(row.partition),
            "due_at": None if self.as_json and row.due_at == IMMEDIATE else row.due_at,
            **{name: getattr(row, name) for name in names},
            "sequenced_at": row.sequenced_at,
            "body_type": row.body_type,
            "size": row.size,
        }
        if self.as_json:
            values["body"] = portable(row)
        self.show_one(values, bodies.preview(row.body, row.body_type, row.size))

    def do_trace(self, *, message: str, **options: Any) -> None:
        row = self._message(message)
        if not self.as_json:
            self.stdout.write(
                _("%(partition)s@%(offset)s, sent by %(producer)s at %(at)s")
                % {
                    "partition": row.partition,
                    "offset": line(row.offset),
                    "producer": line(row.producer),
                    "at": line(row.created_at),
                }
            )
        columns = ("attempt", "client_id", "thread", "claimed_at", "waited", "took", "error")
        rows: list[tuple[Any, ...]] = []
        for group in trace(row):
            rows.append((group.group.name, group.state, *[None] * len(columns)))
            for attempt in group.attempts:
                claim = attempt.delivery
                spans: list[Any] = [attempt.waited, attempt.took]
                if not self.as_json:
                    spans = [None if span is None else precise(span) for span in spans]
                rows.append(
                    (
                        group.group.name if self.as_json else "",
                        f"{claim.kind}: {attempt.outcome}",
                        *(claim.attempt, claim.client_id, claim.thread, claim.claimed_at),
                        *(*spans, attempt.error),
                    )
                )
        self.show(("group", "state", *columns), rows)

    def do_cancel(self, *, message: int, **options: Any) -> None:
        outcome = cancel(message, using=self.using)
        if outcome == "visible":
            raise CommandError(_("Message %d is visible already, or was not delayed.") % message)
        if outcome == "unknown":
            raise CommandError(_("There is no message %s: purged, or never sent.") % message)
        self.tell(_("cancelled message %d") % message, message_id=message, cancelled=True)

    def _message(self, text: str) -> Message:
        messages = Message.objects.using(self.using).select_related("partition__topic")
        messages = own_rows(messages, self.using)
        place, _at, offset = text.rpartition("@")
        topic, _slash, number = place.rpartition("/")
        numbers = [text] if text.isdecimal() else [number, offset]
        if all(one.isdecimal() for one in numbers) and not all(map(fits, numbers)):
            found = None  # no row has a number as high as that
        elif text.isdecimal():
            found = messages.filter(pk=int(text)).first()
        elif topic and number.isdecimal() and offset.isdecimal():
            partitions = Partition.objects.using(self.using).filter(topic__name=topic)
            partition = partitions.filter(number=int(number)).values_list("pk", flat=True).first()
            found = messages.filter(partition=partition, offset=int(offset)).first()
        else:
            raise CommandError(_("Name a message by its id, or by its place: orders/0@12."))
        if found is None:
            raise CommandError(_("There is no message %s: purged, or never sent.") % text)
        return found
