"""Defines the page of the dead letters: to read, redrive or discard them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Min, Q, QuerySet
from django.db.models.functions import Substr
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from streams.admin.bodies import BodyAdmin
from streams.admin.parts import figures, journal
from streams.admin.parts.columns import (
    SHORT,
    group_name,
    list_url,
    messages,
    short,
)
from streams.admin.parts.filters import FixedFilter, GroupFilter, number
from streams.admin.parts.listing import ListReading, StreamsChangeList
from streams.admin.parts.search import Search
from streams.admin.verbs import edit, export, rehearse
from streams.admin.verbs.bulk import Bulk
from streams.conf import database
from streams.consume.outcome.dead_letter import redrive
from streams.models import ConsumerGroup, DeadMessage, Redrive

REDRIVE = Bulk(
    name="redrive",
    verb=redrive,
    title=_("Redrive dead letters"),
    what=_("%s will be handed to their groups again, from the first attempt."),
    skips=_("redriven already, gone, or behind an edited one"),
    done=_("Redriven"),
    rated=True,
)
DISCARD = Bulk(
    name="discard",
    verb=DeadMessage.discard,
    title=_("Discard dead letters"),
    what=_("%s will be deleted, with their copies of the bodies. This cannot be undone."),
    skips=_("redriven, or gone"),
    done=_("Discarded"),
    flag=journal.DELETION,
    typed=True,
)


EDIT = "ems_deadmessage_edit"  # the name of its URL
WAITING, REDRIVEN, EVERY = "waiting", "redriven", "all"

# In rows: how many classes of errors the summary names, and how many letters it looks at.
CLASSES_AT_MOST = 12
SUMMARISED = 10_000
# In characters: what it shows of the traceback of the newest letter of each class.
SAMPLE = 4000


class DeadState(FixedFilter):
    """A filter that shows the letters that wait, if nothing else is asked for; a search finds all.

    An action sees all, too: what was redriven since the list was shown, it leaves out and counts.
    """

    title = _("state")
    parameter_name = "state"
    options = ((WAITING, _("Waiting")), (REDRIVEN, _("Redriven")), (EVERY, _("All")))

    def value(self) -> str:
        is_list = self.request.method != "POST" and not self.request.GET.get("q")
        return super().value() or (WAITING if is_list else EVERY)

    def choices(self, changelist: Any) -> Iterator[Any]:
        return islice(super().choices(changelist), 1, None)  # the first is Django's own "All"

    def narrow(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == EVERY:
            return rows
        if not (self.request.GET.get("q") or self.request.GET.get("group")):
            # The index begins with the group: without them, the server reads the whole table.
            rows = rows.filter(group__in=list(_groups()))
        return rows.filter(redriven_at__isnull=value == WAITING)


def _groups() -> QuerySet[Any, Any]:
    return ConsumerGroup.objects.using(database()).values_list("pk", flat=True)


class DeadChangeList(StreamsChangeList):
    """The list of letters, with the classes of their errors above it."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.redrives = list(Redrive.objects.using(database()).unfinished().defer("ids")[:20])
        self.classes = [] if self.query else self._classes(request)

    def _classes(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Count the waiting letters by class, among those with the newest ids."""
        rows = self.root_queryset.order_by().prefetch_related(None)  # of this namespace
        newest: int = self.model_admin.newest(request)
        self.counted = min(newest, SUMMARISED)
        group = number(request.GET.get("group"))
        of_group = {"group": group} if group else {}
        rows = rows.filter(redriven_at=None, pk__gt=newest - self.counted, **of_group)
        counted = rows.values("error_class")
        counted = counted.annotate(
            count=Count("pk"), first=Min("died_at"), last=Max("died_at"), sample=Max("pk")
        )
        classes = list(counted.order_by("-count", "error_class")[:CLASSES_AT_MOST])
        letters = DeadMessage.objects.using(database()).filter(
            pk__in=[row["sample"] for row in classes]
        )
        start = Substr("traceback", 1, SAMPLE)
        samples = {
            pk: (error, trace) for pk, error, trace in letters.values_list("pk", "error", start)
        }
        return [
            {
                **row,
                "sample": _sample(*samples.get(row["sample"], ("", ""))),
                "url": list_url(DeadMessage, q=row["error_class"], state=WAITING, **of_group),
            }
            for row in classes
        ]

    @property
    def is_counted_in_part(self) -> bool:
        """Tell whether there are letters with older ids, which no class counts."""
        return self.counted == SUMMARISED


def _sample(error: str, trace: str) -> str:
    """Return the traceback of one letter, or its error; its end is cut if it is long."""
    return f"{trace}…" if len(trace) == SAMPLE else trace or error[:SAMPLE]


@admin.register(DeadMessage)
class DeadMessageAdmin(BodyAdmin):
    list_display = (
        "id",
        group_name,
        "failure",
        short("key", 18),
        figures.counted("attempts"),
        "died_at",
        "state",
    )
    list_filter = (GroupFilter, DeadState)
    related = ("partition", "group")
    searched = 20_000  # fewer, since the rows are large: body and traceback
    search_fields = ("id", "message_id", "key", "error_class")
    search_help_text = _("An id, a place (orders/0@12), a whole key, or a class of error.")
    fields = (
        ("id", "group", messages),
        ("key", "tag"),
        "headers",
        ("producer", "sent_at"),
        ("body_type", "size"),
        ("attempts", "died_at", "redriven_at"),
        "edited_at",
        "error_class",
        "error",
    )
    actions = ("rehearse", "redrive", "discard", "export")
    verbs = {"rehearse": _("Rehearse …"), "redrive": _("Redrive …"), "discard": _("Discard …")}

    @admin.action(permissions=["rehearse"], description=_("Rehearse …"))
    def rehearse(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return rehearse.of_letters(self, request, queryset)

    @admin.action(permissions=["redrive"], description=_("Redrive …"))
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return REDRIVE.respond(self, request, queryset)

    @admin.action(permissions=["discard"], description=_("Discard …"))
    def discard(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return DISCARD.respond(self, request, queryset)

    @admin.action(permissions=["body"], description=_("Export as CSV"))
    def export(self, request: HttpRequest, queryset: QuerySet[Any]) -> StreamingHttpResponse:
        return export.respond(queryset)

    def has_rehearse_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.rehearse_consumergroup")

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.redrive_deadmessage")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ems.discard_deadmessage")

    def has_edit_permission(self, request: HttpRequest) -> bool:
        # The form shows the body.
        may_edit = request.user.has_perm("ems.edit_deadmessage")
        return may_edit and self.has_view_permission(request) and self.has_body_permission(request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.edit_view)
        return [path("<path:object_id>/edit/", view, name=EDIT), *super().get_urls()]

    @method_decorator(require_http_methods(["GET", "POST"]))
    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Edit a letter, show the difference, and give the letter to its group again."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        letter = self.get_object(request, unquote(object_id))
        if letter is None:
            raise Http404
        return edit.respond(self, request, letter)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        letter = kwargs["obj"]
        if letter.redriven_at is None and self.has_edit_permission(request):
            context["edit_url"] = reverse(f"admin:{EDIT}", args=[letter.pk])
        if letter.edited_at and self.has_body_permission(request):
            context["edits"] = edit.edits(letter)
        return super().render_change_form(request, context, *args, **kwargs)

    def possible_verbs(self, row: DeadMessage) -> Mapping[str, Any]:
        return self.verbs if row.redriven_at is None else {}

    @admin.display(description=_("message and error"))
    def failure(self, row: DeadMessage) -> str:
        """Return the place, and below it the class of the error, linked to the letters with it."""
        of_class = list_url(DeadMessage, q=row.error_class)
        return format_html(
            '{}<div class="ems-below ems-cut"><a href="{}">{}</a>: {}</div>',
            messages(row),
            of_class,
            row.error_class.rpartition(".")[2],
            figures.titled(row.error, 2 * SHORT),
        )

    @admin.display(description=_("state"))
    def state(self, row: DeadMessage) -> str:
        if row.redriven_at is None:
            text = gettext("waiting, edited") if row.edited_at else gettext("waiting")
            return figures.state(text, figures.WARNING)
        return figures.state(gettext("edited, redriven") if row.edited_at else gettext("redriven"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("body", "headers", "traceback")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamsChangeList]:
        return DeadChangeList

    def reading(self, request: HttpRequest) -> ListReading:
        search = self.search(request)
        if search.place:
            return ListReading()
        if search.is_text:
            return ListReading(is_bounded=True, always=search.id_match)
        return ListReading()

    def found(self, search: Search) -> Q:
        text = Q(key=search.text) | Q(error_class=search.text)
        if search.pk is not None:
            text |= Q(message_id=search.pk)
        at_place = search.place.of_groups if search.place else None
        return search.matches(text, at_place)
