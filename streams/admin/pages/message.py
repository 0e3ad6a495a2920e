"""Defines the page of the messages: bodies, traces, and cancelling delayed messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from streams.admin.bodies import BodyAdmin
from streams.admin.parts import figures, journal
from streams.admin.parts.columns import instant, place, short, url
from streams.admin.parts.figures import UNKNOWN
from streams.admin.parts.filters import FixedFilter, PartitionFilter, number
from streams.admin.parts.finder import FinderChangeList, FinderForm
from streams.admin.parts.lanes import Lanes, attempt_level
from streams.admin.parts.listing import ListReading
from streams.admin.parts.search import Search
from streams.conf import database
from streams.models import IMMEDIATE, Message, Partition, UtcNow
from streams.observe.producers import who_is
from streams.observe.trace import TracedAttempt, trace
from streams.produce.cancel import cancel

# In messages: each is cancelled in its own transaction, so more would take longer than a web
# request should.
CANCEL_AT_MOST = 1000
# What the page of a group's replays asks for.
REPLAY = ("ems.view_consumergroup", "ems.replay_consumergroup")


class MessageState(FixedFilter):
    title = _("state")
    parameter_name = "state"
    options = (("log", _("In the log")), ("inbox", _("In the inbox")), ("delayed", _("Delayed")))

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "log":
            return rows.exclude(offset=None)
        waiting = rows.filter(offset=None)
        if value == "delayed":
            return waiting.filter(due_at__gt=UtcNow())
        return waiting


@admin.register(Message)
class MessageAdmin(BodyAdmin):
    list_display = (
        "id",
        place,
        short("key", 20),
        short("tag", 12),
        figures.counted("size", _("bytes")),
        "created_at",
        "sequenced",
        "sender",
    )
    list_filter = (PartitionFilter, MessageState)
    related = ("partition",)
    search_fields = ("id", "key")
    search_help_text = _("An id, a place (orders/0@12 or orders/0@12-20), or a whole key.")
    fields = (
        ("id", place),
        ("key", "tag"),
        "headers",
        ("host", "process", "thread"),
        ("created_at", "due", "sequenced_at"),
        ("body_type", "size"),
    )

    actions = ("cancel",)
    verbs = {"cancel": _("Cancel")}

    @admin.action(permissions=["cancel"], description=_("Cancel what is delayed"))
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Cancel delayed messages, each by itself, since some may have become visible meanwhile."""
        is_across = request.POST.get("select_across") == "1"
        delayed = queryset.filter(offset=None, due_at__gt=IMMEDIATE)
        if is_across:
            # With the partitions, the index of the inbox is used, and the log is not read.
            partitions = Partition.objects.using(database()).values_list("pk", flat=True)
            delayed = delayed.filter(partition__in=list(partitions))
        chosen = list(delayed.order_by()[: CANCEL_AT_MOST + 1])
        if len(chosen) > CANCEL_AT_MOST:
            text = gettext(
                "More than %d messages are delayed, too many for a web page: choose fewer."
                " Nothing was done."
            )
            self.message_user(request, text % CANCEL_AT_MOST, messages.ERROR)
            return
        if is_across and not chosen:
            text = gettext("None of these messages is delayed: nothing was done.")
            self.message_user(request, text, messages.WARNING)
            return
        late = len(chosen) if is_across else queryset.count()
        cancelled: list[Any] = []
        try:
            for row in chosen:
                if cancel(row.pk, using=database()) == "cancelled":
                    cancelled.append(row)  # noqa: PERF401 - an error must not lose the others
        finally:  # so that what was done before an error is in the journal, too
            journal.note(request, [(row, gettext("Cancelled")) for row in cancelled])
        late -= len(cancelled)
        if cancelled:
            text = ngettext(
                "%d message was cancelled.", "%d messages were cancelled.", len(cancelled)
            )
            self.message_user(request, text % len(cancelled))
        if late:
            text = ngettext(
                "%d message is not delayed, or is visible already: nothing was done.",
                "%d messages are not delayed, or are visible already: nothing was done.",
                late,
            )
            self.message_user(request, text % late, messages.WARNING)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.cancel_message")

    def possible_verbs(self, row: Message) -> Mapping[str, Any]:
        waits = row.offset is None and row.due_at is not None and row.due_at > IMMEDIATE
        return self.verbs if waits else {}

    @admin.display(description=_("sequenced"))
    def sequenced(self, row: Message) -> str:
        """Return when it got its offset, or what it waits for."""
        if row.sequenced_at is not None:
            return instant(row.sequenced_at)
        return figures.state(
            gettext("in the inbox") if row.due_at == IMMEDIATE else gettext("delayed")
        )

    @admin.display(description=_("producer"))
    def sender(self, row: Message) -> str:
        return format_html('<span title="{}">{}</span>', row.producer, self.host(row)[:15])

    @admin.display(description=_("producer's host"))
    def host(self, row: Message) -> str:
        return who_is(row.producer)[0]

    @admin.display(description=_("process id"))
    def process(self, row: Message) -> str:
        return who_is(row.producer)[1] or UNKNOWN

    @admin.display(description=_("thread"))
    def thread(self, row: Message) -> str:
        return who_is(row.producer)[2] or UNKNOWN

    @admin.display(description=_("due"))
    def due(self, row: Message) -> str:
        return gettext("at once") if row.due_at == IMMEDIATE else instant(row.due_at)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[FinderChangeList]:
        return FinderChangeList

    def reading(self, request: HttpRequest) -> ListReading:
        if FinderForm.asked(request):
            return ListReading(("-sequenced_at", "-offset", "-id"))
        search = self.search(request)
        if search.is_text:
            return ListReading(is_bounded=True, always=search.id_match)
        partition, state = request.GET.get("partition"), request.GET.get("state")
        if partition or search.place:
            # The log from its end, or the inbox in the order of due times. Not also by id:
            # MariaDB would sort.
            in_log = state in (None, "log")
            return ListReading(("-offset",) if in_log else ("due_at", "id"))
        return ListReading(is_bounded=bool(state))

    def newest(self, request: HttpRequest) -> int:
        partition = number(request.GET.get("partition"))
        if partition is None:
            return super().newest(request)
        of_topic = Message.objects.using(database()).filter(partition=partition)
        if of_topic.inbox().exists():
            return super().newest(request)
        # A topic without recent messages is searched from its own newest one.
        return of_topic.order_by("-offset").values_list("pk", flat=True).first() or 0

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return the list; redirect to the page of a message if the search names its place."""
        if request.method == "GET" and set(request.GET) == {"q"}:
            place = self.search(request).place
            if place and place.first == place.last and self.has_view_permission(request):
                found = Message.objects.using(database()).filter(place.messages).first()
                if found:
                    return HttpResponseRedirect(url(found))
        return super().changelist_view(request, extra_context)

    def found(self, search: Search) -> Q:
        at_place = search.place.messages if search.place else None
        return search.matches(Q(key=search.text), at_place)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        with contextlib.suppress(Partition.DoesNotExist):  # deleted with its topic
            context["trace"] = trace(kwargs["obj"])
            context["lanes"] = Lanes.of(kwargs["obj"], context["trace"])
        context["may_replay"] = request.user.has_perms(REPLAY)
        return super().render_change_form(request, context, *args, **kwargs)


def attempt_state(attempt: TracedAttempt) -> str:
    """Return the outcome of an attempt on the colour of its level."""
    return figures.state(attempt.outcome, attempt_level(attempt))
