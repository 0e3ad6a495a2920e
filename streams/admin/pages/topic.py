"""Defines the page of the topics: access, retention, partitions, purge and deletion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import flatten
from django.db.models import Model, Prefetch, QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import StreamsAdmin
from streams.admin.parts import figures
from streams.admin.parts.columns import at, below, link, list_url
from streams.admin.parts.filters import FixedFilter
from streams.admin.verbs import topic
from streams.admin.verbs.produce import produce
from streams.admin.verbs.purge_preview import purge_preview
from streams.conf import database
from streams.models import Access, ConsumerGroup, Message, Partition, Topic
from streams.models.topic import MAX_RETENTION
from streams.operate.changes import CHANGEABLE
from streams.retain.rule import default_of, rule_of
from streams.runtime_settings import system

# In partitions: what a list shows of a topic that has many.
LOGS_AT_MOST = 2

ACCESS = {
    Access.READ_WRITE: (_("read, write"), figures.GOOD),
    Access.WRITE_ONLY: (_("write only"), figures.WARNING),
    Access.READ_ONLY: (_("read only"), figures.WARNING),
    Access.DENIED: (_("denied"), figures.BAD),
}


# What the form takes.
LIMITS = {"retention_seconds": (0, MAX_RETENTION), "retention_count": (1, 2**63 - 1)}


class AccessFilter(FixedFilter):
    title = _("access")
    parameter_name = "access"
    options = Access.choices


@admin.register(Topic)
class TopicAdmin(StreamsAdmin):
    """The topics. A change of the access is in force in all processes within 5 seconds."""

    actions = ("produce", "remove")
    verbs = {"produce": _("Send a test message …"), "remove": _("Delete …")}

    list_display = ("title", "accepts", "sequenced", "kept", "groups", "kept_for", "logs")
    list_filter = (AccessFilter,)
    ordering = ("name",)
    sortable_by = ("title",)
    search_fields = ("name",)
    fields = ("name", *CHANGEABLE[Topic])
    facts = (
        "retention",
        ("sequenced", "kept"),
        "purge",
        "logs",
        "group_links",
        at("created_at", _("created")),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        using = database()
        related = (
            Prefetch("partitions", Partition.objects.using(using).order_by("number")),
            Prefetch("groups", ConsumerGroup.objects.using(using).order_by("name")),
        )
        days = Value(system("messageRetentionDays", using))
        rows: QuerySet[Any] = super().get_queryset(request).annotate(default_days=days)
        return rows.prefetch_related(*related)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[Any, ...]:
        return (*self.fields, *self.facts) if obj else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[Any, ...]:
        return ("name", *flatten(self.facts)) if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in LIMITS:
            kwargs["min_value"], kwargs["max_value"] = LIMITS[db_field.name]
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    @admin.action(permissions=["produce"], description=_("Send a test message …"))
    def produce(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self._one(request, queryset, produce)

    @admin.action(permissions=["remove"], description=_("Delete …"))
    def remove(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self._one(request, queryset, topic.remove)

    def has_produce_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.produce_topic")

    def has_remove_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.delete_topic")

    def possible_verbs(self, row: Topic) -> Mapping[str, Any]:
        takes = row.access in (Access.READ_WRITE, Access.WRITE_ONLY)
        possible = dict(super().possible_verbs(row))
        del possible["remove" if takes else "produce"]
        return possible

    def _one(self, request: HttpRequest, queryset: QuerySet[Any], verb: Any) -> HttpResponse | None:
        chosen = list(queryset[:2])
        if len(chosen) != 1:
            text = gettext("That is done with one topic at a time: choose one.")
            self.message_user(request, text, messages.WARNING)
            return None
        response: HttpResponse = verb(self, request, chosen[0])
        return response

    @admin.display(description=_("next purge"))
    def purge(self, row: Topic) -> Any:
        """Return what a purge would delete now, and what holds it back."""
        return purge_preview(row)

    @admin.display(description=_("name"), ordering="name")
    def title(self, row: Topic) -> str:
        return figures.titled(row.name, 42)

    @admin.display(description=_("access"))
    def accepts(self, row: Topic) -> str:
        """Return what may be done with it, in few words."""
        return figures.state(*ACCESS[Access(row.access)])

    @admin.display(description=_("sequenced"))
    def sequenced(self, row: Topic) -> str:
        return figures.number(sum(partition.next_offset for partition in row.partitions.all()))

    @admin.display(description=_("kept"))
    def kept(self, row: Topic) -> str:
        partitions = row.partitions.all()
        return figures.number(sum(one.next_offset - one.first_offset for one in partitions))

    @admin.display(description=_("groups"))
    def groups(self, row: Topic) -> str:
        return figures.number(len(row.groups.all()), list_url(ConsumerGroup, topic=row.pk))

    @admin.display(description=_("messages"))
    def logs(self, row: Topic) -> Any:
        partitions = list(row.partitions.all())
        texts = [_("log")] if len(partitions) == 1 else [f"/{p.number}" for p in partitions]
        urls = [list_url(Message, partition=partition.pk) for partition in partitions]
        shown = list(zip(urls, texts, strict=True))
        links = format_html_join(" ", '<a href="{}">{}</a>', shown[:LOGS_AT_MOST])
        more = list_url(Partition, q=row.name)
        if len(shown) > LOGS_AT_MOST:
            links += format_html(' <a href="{}">{}</a>', more, gettext("all %d") % len(shown))
        return links

    @admin.display(description=_("retention"))
    def retention(self, row: Any) -> str:
        """Return what limits the messages of the topic, and whether that is the default."""
        return str(rule_of(row, database(), default_of(row.default_days)))

    @admin.display(description=_("retention"))
    def kept_for(self, row: Any) -> str:
        """Return its retention in two lines."""
        first, _slash, more = self.retention(row).partition(" / ")
        return below(first, more)

    @admin.display(description=_("groups"))
    def group_links(self, row: Topic) -> Any:
        groups = list(row.groups.all())
        if not groups:
            # A misspelt name in send() makes such a topic.
            return _("none: nobody reads it") if self.kept(row) else None
        return format_html_join(", ", "{}", ((link(group, group.name),) for group in groups))
