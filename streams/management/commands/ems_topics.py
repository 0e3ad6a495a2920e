from __future__ import annotations

from typing import Any

from django.db.models import Count, Sum
from django.utils.translation import gettext_lazy as _

from streams.management.base import StreamsCommand
from streams.models import Message, Topic


class Command(StreamsCommand):
    help = "The topics and their logs."
    verbs = {"list": _("all topics with their partitions and messages")}

    def do_list(self, **options: Any) -> None:
        topics = Topic.objects.using(self.using).annotate(
            n=Count("partitions"),
            end=Sum("partitions__next_offset"),
            start=Sum("partitions__first_offset"),
        )
        inbox = self._inbox()
        self.show(
            ("topic", "access", "partitions", "inbox", "sequenced", "kept", "retention_seconds"),
            (
                (
                    t.name,
                    t.access,
                    t.n,
                    inbox.get(t.pk, 0),
                    t.end,
                    (t.end or 0) - (t.start or 0),
                    t.retention_seconds,
                )
                for t in topics.order_by("name")
            ),
        )

    def _inbox(self) -> dict[int, int]:
        """Messages without an offset, by topic: delayed ones too."""
        partitions = dict(
            Topic.objects.using(self.using).values_list("partitions__id", "id").order_by()
        )
        inbox = Message.objects.using(self.using).inbox().filter(partition__in=partitions)
        counted: dict[int, int] = {}
        for partition, count in inbox.values_list("partition").annotate(n=Count("pk")).order_by():
            topic = partitions[partition]
            counted[topic] = counted.get(topic, 0) + count
        return counted
