from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams import body as bodies
from streams.management.base import StreamsCommand, add_json, text
from streams.models import Message
from streams.trace import trace

# A search by key reads the newest messages of the topic, and says how many.
SEARCHED = 100_000


class Command(StreamsCommand):
    help = "The messages: list them, show one, trace its way through every group."
    verbs = {
        "list": gettext_lazy("the newest messages of a topic"),
        "show": gettext_lazy("one message with its body"),
        "trace": gettext_lazy("what every group has done with one message"),
    }

    def add_list_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", help=_("name of the topic"))
        parser.add_argument("--key", help=_("only messages with this key"))
        parser.add_argument("--limit", type=int, default=20, help=_("at most so many (20)"))
        add_json(parser)

    def add_show_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message_id", type=int)

    def add_trace_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message_id", type=int)
        add_json(parser)

    def do_list(self, *, topic: str, key: str | None, limit: int, **options: Any) -> None:
        messages = Message.objects.using(self.using).filter(partition__topic__name=topic)
        if key is not None:
            newest = messages.order_by("-id").values_list("id", flat=True)
            floor = list(newest[SEARCHED - 1 : SEARCHED])
            messages = messages.filter(key=key, id__gte=floor[0] if floor else 0)
            if floor:
                self.stderr.write(_("searched the newest %d messages") % SEARCHED)
        rows = messages.select_related("partition").defer("body").order_by("-id")[:limit]
        self.show(
            ("id", "partition", "offset", "key", "tag", "size", "created_at", "sequenced_at"),
            (
                (
                    m.pk,
                    m.partition.number,
                    m.offset,
                    m.key,
                    m.tag,
                    m.size,
                    m.created_at,
                    m.sequenced_at,
                )
                for m in rows
            ),
        )

    def do_show(self, *, message_id: int, **options: Any) -> None:
        message = self._message(message_id)
        for name in (
            "partition",
            "offset",
            "due_at",
            "key",
            "tag",
            "headers",
            "producer",
            "created_at",
            "sequenced_at",
            "body_type",
            "size",
        ):
            self.stdout.write(f"{name:13} {text(getattr(message, name))}")
        self.stdout.write(bodies.preview(message.body, message.body_type, message.size))

    def do_trace(self, *, message_id: int, **options: Any) -> None:
        message = self._message(message_id)
        if not self.as_json:
            self.stdout.write(
                _("sent by %(producer)s at %(at)s UTC")
                % {"producer": message.producer, "at": text(message.created_at)}
            )
        rows = []
        for group in trace(message):
            rows.append((group.group.name, group.state, *[None] * 6))
            rows += [
                (
                    "",
                    f"{d.kind} {d.state}",
                    d.attempt,
                    d.client_id,
                    d.thread,
                    d.claimed_at,
                    d.finished_at,
                    d.error,
                )
                for d in group.deliveries
            ]
        self.show(
            ("group", "state", "attempt", "client", "thread", "claimed", "finished", "error"), rows
        )

    def _message(self, message_id: int) -> Message:
        messages = Message.objects.using(self.using).select_related("partition__topic")
        message = messages.filter(pk=message_id).first()
        if message is None:
            raise CommandError(_("There is no message %d: purged, or never sent.") % message_id)
        return message
