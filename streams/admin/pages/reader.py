"""Defines the page of the streams of Spark: what EMS knows of each, and how to forget one."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _

from streams.admin.base import LargeAdmin, ReadOnly
from streams.admin.parts.columns import short
from streams.admin.parts.filled import ListedOnceFilled
from streams.conf import database
from streams.models import Partition, Reader


@admin.register(Reader)
class ReaderAdmin(ListedOnceFilled, ReadOnly, LargeAdmin):
    list_display = ("checkpoint", short("name", 40), "topic", "protect", "seen_at")
    fields = (
        short("name", 127),
        *("checkpoint", "topic", "protect", "places"),
        ("first_seen_at", "seen_at"),
    )

    @admin.display(description=_("next offsets"))
    def places(self, row: Reader) -> str:
        """Return the position in each partition; one that it has not come to is left out."""
        partitions = Partition.objects.using(database()).filter(topic=row.topic.pk)
        known = [one for one in partitions.order_by("number") if str(one.pk) in row.positions]
        lines = ((one.number, row.position(one.pk)) for one in known)
        return format_html_join("", "<div>{}: {}</div>", lines)
