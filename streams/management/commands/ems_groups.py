from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.lag import lags
from streams.management.base import StreamsCommand, add_dry_run, add_json
from streams.models import ConsumerGroup


class Command(StreamsCommand):
    help = "The consumer groups: how far behind they are; pause, resume and delete them."
    verbs = {
        "list": gettext_lazy("all groups with their lag"),
        "pause": gettext_lazy("claim nothing more; what runs is finished"),
        "resume": gettext_lazy("go on claiming"),
        "delete": gettext_lazy("forget a group with its position, retries and dead letters"),
    }
    add_list_arguments = staticmethod(add_json)

    def add_pause_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("group", help=_("name of the group"))
        parser.add_argument("--topic", help=_("only on this topic"))

    add_resume_arguments = add_pause_arguments

    def add_delete_arguments(self, parser: ArgumentParser) -> None:
        self.add_pause_arguments(parser)
        add_dry_run(parser)

    def do_list(self, **options: Any) -> None:
        groups = ConsumerGroup.objects.using(self.using).select_related("topic")
        rows = (
            (
                lag.group.name,
                lag.group.topic.name,
                "paused" if lag.group.paused else "running" if lag.consumers else "no consumer",
                lag.consumers,
                lag.behind,
                lag.open,
                lag.waiting,
                lag.dead,
                lag.age,
            )
            for lag in lags(groups.order_by("topic__name", "name"), self.using)
        )
        self.show(
            ("group", "topic", "state", "consumers", "behind", "open", "retries", "dead", "age"),
            rows,
        )

    def do_pause(self, **options: Any) -> None:
        self.stdout.write(_("paused: %d") % self._chosen(**options).pause())

    def do_resume(self, **options: Any) -> None:
        self.stdout.write(_("resumed: %d") % self._chosen(**options).resume())

    def do_delete(self, *, dry_run: bool, **options: Any) -> None:
        for group in self._chosen(**options).select_related("topic"):
            counts = group.contents()
            text = ", ".join(f"{count} {name}" for name, count in counts.items())
            if dry_run:
                self.stdout.write(
                    _("would delete %(group)s: %(text)s") % {"group": group, "text": text}
                )
            else:
                group.forget()
                self.stdout.write(_("deleted %(group)s: %(text)s") % {"group": group, "text": text})

    def _chosen(self, *, group: str, topic: str | None, **options: Any) -> Any:
        chosen = ConsumerGroup.objects.using(self.using).filter(name=group)
        if topic:
            chosen = chosen.filter(topic__name=topic)
        if not chosen.exists():
            raise CommandError(_("There is no group %r.") % group)
        return chosen
