from __future__ import annotations

from typing import Any

from django.db.models import Count, Sum
from django.utils.translation import gettext_lazy as _

from streams.management.base import StreamsCommand, add_json
from streams.models import Topic


class Command(StreamsCommand):
    help = "The topics and their logs."
    verbs = {"list": _("all topics with their partitions and messages")}
    add_list_arguments = staticmethod(add_json)

    def do_list(self, **options: Any) -> None:
        topics = (
            Topic.objects.using(self.using)
            .annotate(
                n=Count("partitions"),
                end=Sum("partitions__next_offset"),
                start=Sum("partitions__first_offset"),
            )
            .order_by("name")
        )
        self.show(
            ("topic", "access", "partitions", "sequenced", "kept", "retention_seconds"),
            (
                (t.name, t.access, t.n, t.end, (t.end or 0) - (t.start or 0), t.retention_seconds)
                for t in topics
            ),
        )
