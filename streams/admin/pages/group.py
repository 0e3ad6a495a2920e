"""Defines the page of the consumer groups: their lag, their overrides, and a rehearsal."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import flatten
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from streams.admin.base import StreamsAdmin, StreamsForm
from streams.admin.parts import figures
from streams.admin.parts.columns import Column, at, column, flag, linked, list_url, url
from streams.admin.parts.filters import FixedFilter, TopicFilter
from streams.admin.parts.listing import StreamsChangeList
from streams.admin.verbs import rehearse
from streams.conf import MOST, database
from streams.consume.blocked import blockades
from streams.errors import InvalidRate, InvalidRetryPolicy
from streams.log.standings import standings
from streams.models import (
    Consumer,
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    HeldKey,
    Mode,
    RetryMessage,
    State,
)
from streams.operate.acts.unblock import UNBLOCKING
from streams.operate.changes import CHANGEABLE, valid_rate, valid_retry_policy
from streams.operate.replay import replays

# In groups: to sort more by their lag takes longer than a page should.
SORTED_AT_MOST = 1000


class Paused(FixedFilter):
    title = _("state")
    parameter_name = "paused"
    options = (("1", _("Paused")), ("0", _("Not paused")))


class GroupChangeList(StreamsChangeList):
    """The list of groups: those that need somebody first, in the order of log/condition.py."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if self.result_count > SORTED_AT_MOST:
            self.result_list = with_lag(self.result_list)
        else:
            groups = with_lag(self.queryset)
            groups.sort(key=lambda group: group.standing.order)
            is_whole = self.show_all or not self.multi_page
            first = 0 if is_whole else (self.page_num - 1) * self.list_per_page
            self.result_list = groups[first:] if is_whole else groups[first:][: self.list_per_page]
        for group in self.result_list:
            group.url = self.page_of(group)

    def note(self) -> str:
        if self.result_count > SORTED_AT_MOST:
            return gettext("By name. Up to %d groups are sorted by their need for action.") % (
                SORTED_AT_MOST
            )
        return gettext("Those in trouble first, then those with the oldest message.")


def with_lag(groups: Any) -> list[Any]:
    """Return the groups, each with its ``lag`` and how it stands."""
    chosen = list(groups)
    for group, standing in zip(chosen, standings(chosen, database()), strict=True):
        group.lag, group.standing = standing.lag, standing
    return chosen


class GroupForm(StreamsForm):
    """The values that may be overridden for a group."""

    def clean_retry_policy(self) -> str:
        try:
            return valid_retry_policy(self.cleaned_data["retry_policy"])
        except InvalidRetryPolicy as error:
            raise forms.ValidationError(str(error)) from error

    def clean_rate(self) -> str:
        try:
            return valid_rate(self.cleaned_data["rate"])
        except InvalidRate as error:
            raise forms.ValidationError(str(error)) from error


def counted(name: str, description: Any, model: type[Model], **filters: str) -> Column:
    """Return a column with a number of the lag, linked to the rows that it counts."""

    @column(description)
    def show(row: Any) -> str:
        return figures.number(getattr(row.lag, name), list_url(model, group=row.pk, **filters))

    show.__name__ = name
    return show


# Live processes; sequenced and not claimed yet; claimed and not settled yet; what waits.
CONSUMERS = counted("consumers", _("consumers"), Consumer, lease="live")
NUMBERS = (
    counted("behind", _("behind"), Cursor),
    counted("open", _("open"), Delivery, state=State.START.value),
    counted("waiting", _("retries"), RetryMessage, state="waiting"),
    counted("dead", _("dead"), DeadMessage, state="waiting"),
)
# The most that the form takes, as for the system settings of the same meaning.
LIMITS = {"max_retries": MOST, "consume_timeout": MOST}


@admin.register(ConsumerGroup)
class ConsumerGroupAdmin(StreamsAdmin):
    """The groups with their current lag. Pause and resume are in force within 5 seconds."""

    list_display = ("group", "state", "age", *NUMBERS, CONSUMERS)
    list_display_links = None
    list_filter = (TopicFilter, Paused)
    ordering = ("name", "topic__name")
    sortable_by = ()
    search_fields = ("name", "topic__name")
    search_help_text = _("A part of a group's or a topic's name.")
    facts = (
        ("name", linked("topic", description=_("topic"))),
        ("state", CONSUMERS, at("created_at", _("created"))),
        ("age", *NUMBERS),
        "rows",
        "replays",
        ("mode", flag("ordered", _("ordered")), flag("by_key", _("by key")), "start"),
        "rate_now",
    )
    overrides = CHANGEABLE[ConsumerGroup]
    fieldsets = (
        (None, {"fields": facts}),
        (
            _("Overrides"),
            {
                "fields": overrides,
                "description": _("Stronger than the code and the system settings. Empty: those."),
            },
        ),
    )
    form = GroupForm
    readonly_fields = flatten(facts)
    change_form_template = "admin/ems/consumergroup/change_form.html"
    actions = ("rehearse",)
    verbs = {"rehearse": _("Rehearse …")}

    @admin.action(permissions=["rehearse"], description=_("Rehearse …"))
    def rehearse(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        chosen = list(queryset[:2])
        if len(chosen) != 1:
            text = gettext("That is done with one group at a time: choose one.")
            self.message_user(request, text, messages.WARNING)
            return None
        return rehearse.of_group(self, request, chosen[0])

    def has_rehearse_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.rehearse_consumergroup")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in LIMITS:
            kwargs["max_value"] = LIMITS[db_field.name]
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show what blocks the group above all; what lets it go on stands beside it."""
        group = kwargs["obj"]
        blocked = [group] if group.lag.blocked else []
        context["blockade"] = blockades(blocked, database()).get(group.pk)
        response = super().render_change_form(request, context, *args, **kwargs)
        verbs = context["verbs"]
        context["unblock"] = [one for one in verbs if one[0] in UNBLOCKING]
        context["verbs"] = [one for one in verbs if one[0] not in UNBLOCKING]
        return response

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("topic")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamsChangeList]:
        return GroupChangeList

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        group = super().get_object(request, *args, **kwargs)
        return group and with_lag([group])[0]

    @admin.display(description=_("group"))
    def group(self, row: Any) -> str:
        """Return the name, and below it the topic and what is special about the group."""
        return format_html(
            '{}<div class="ems-below">{} {}{}</div>',
            figures.named(row.name, row.url, 56),
            gettext("on"),
            figures.named(row.topic.name, url(row.topic), 48),
            "" if row.kind == Mode.CLUSTER else f" · {row.kind_text}",
        )

    @admin.display(description=_("state"))
    def state(self, row: Any) -> Any:
        return figures.group_state(row.standing)

    @admin.display(description=_("age"))
    def age(self, row: Any) -> str:
        """Return the time since the oldest unfinished message was sequenced."""
        return figures.age(row.lag.age)

    @admin.display(description=_("rows"))
    def rows(self, row: Any) -> Any:
        """Return links to the rows of the group in other tables."""
        models = (Cursor, Consumer, Delivery, RetryMessage, HeldKey, DeadMessage)
        links = ((list_url(m, group=row.pk), m._meta.verbose_name_plural) for m in models)
        return format_html_join(" · ", '<a href="{}">{}</a>', links)

    @admin.display(description=_("rate in force"))
    def rate_now(self, row: Any) -> str:
        """Return how many of its messages may begin in a time, in all its processes."""
        return row.rate_in_force or figures.UNKNOWN

    @admin.display(description=_("replays"))
    def replays(self, row: Any) -> Any:
        """Return how far its replays are; ended ones are shown until the next replay or purge."""
        found = ((str(one),) for one in replays([row], database()))
        return format_html_join("", "<div>{}</div>", found) or figures.UNKNOWN
