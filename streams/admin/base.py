"""Defines what the admin pages of EMS have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import flatten, quote, unquote
from django.db.models import Max, Model, Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from streams.admin import acts
from streams.admin.index import begin_index
from streams.admin.parts import journal
from streams.admin.parts.columns import is_linked, label, shown
from streams.admin.parts.figures import UNKNOWN
from streams.admin.parts.listing import (
    UPTO,
    CappedPaginator,
    ListReading,
    StreamsChangeList,
    Window,
    WindowPaginator,
)
from streams.admin.parts.search import ID, Search
from streams.admin.switch import OnItsDatabase
from streams.conf import database
from streams.log.foreign import own_rows
from streams.models import ConsumerGroup, Partition, Topic


class StreamsForm(forms.ModelForm):  # type: ignore[type-arg]  # generic only in stubs
    """A form that validates against the tables of the page's database, also without a router."""

    def _post_clean(self) -> None:
        self.instance._state.db = database()
        super()._post_clean()  # type: ignore[misc]


class StreamsAdmin(OnItsDatabase, admin.ModelAdmin):  # type: ignore[type-arg]  # generic in stubs
    """The admin of a table of EMS: on one database, and each verb needs its own permission."""

    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    form = StreamsForm
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_select_related = ()
    empty_value_display = UNKNOWN
    view_on_site = False

    # Foreign keys shown in the list. They are fetched by separate statements: in a join the server
    # may begin with the small table, and sort millions of rows to show fifty.
    related: tuple[str, ...] = ()
    # The most rows that a filter or search without an index reads: see
    # docs/about/benchmarks/admin.md.
    searched = 50_000
    # The actions that the page of one row has, too: {name: text of the button}.
    verbs: Mapping[str, Any] = {}

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        if not self.related:
            linked = [one.name for one in model._meta.concrete_fields if is_linked(one)]
            self.related = tuple(name for name in linked if name in self.list_display)
        self.list_display = shown(model, self.list_display)
        begin_index(admin_site)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        using = database()
        rows = {
            "topic": Topic.objects.using(using),
            "partition": Partition.objects.using(using).select_related("topic"),
            "group": ConsumerGroup.objects.using(using).select_related("topic"),
        }
        prefetched = [Prefetch(name, queryset=rows[name]) for name in self.related]
        found: QuerySet[Any] = self.model._default_manager.using(using)
        return own_rows(found, using).prefetch_related(*prefetched)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[StreamsChangeList]:
        return StreamsChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Without this, Django accepts every column in the URL: that may scan a large table, and
        # lets a user read hidden bodies bit by bit.
        filters: Any = self.list_filter
        return lookup in {filter_.parameter_name for filter_ in filters} | {UPTO}

    def reading(self, request: HttpRequest) -> ListReading:
        """Return how the list reads its table for the filters of this URL."""
        return ListReading(self.ordering)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return self.reading(request).ordering

    def window(self, request: HttpRequest) -> Window | None:
        """Return the part of the table that the list is limited to; None is all of it."""
        reading = self.reading(request)
        if not reading.is_bounded:
            return None
        asked = request.GET.get(UPTO, "")
        return Window.of(self.newest(request), asked[:18], self.searched, reading.always)

    def newest(self, request: HttpRequest) -> int:
        """Return the id at which a search begins."""
        rows = self.model._default_manager.using(database())
        return rows.aggregate(newest=Max("pk"))["newest"] or 0

    def get_paginator(self, request: HttpRequest, *args: Any, **kwargs: Any) -> CappedPaginator:
        is_bounded = self.reading(request).is_bounded
        return (WindowPaginator if is_bounded else CappedPaginator)(*args, **kwargs)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        # Checked here, since Django passes the posted values to the database unchecked.
        if all(ID.fullmatch(pk) for pk in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            return super().response_action(request, queryset, *args, **kwargs)
        self.message_user(request, _("These are not rows of this list."), messages.ERROR)
        return None

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        # Only the fields that were changed here: a group paused meanwhile must stay paused.
        # Links to many rows are not columns: save_related writes them.
        columns = {field.name for field in obj._meta.concrete_fields}
        fields = [name for name in form.changed_data if name in columns] if change else None
        obj.save(using=database(), update_fields=fields)

    def get_object(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> Any:
        return super().get_object(request, journal.parted(object_id)[1], *args, **kwargs)

    def history_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> Any:
        placed = quote(journal.placed_id(unquote(object_id)))
        return super().history_view(request, placed, *args, **kwargs)

    def log_addition(self, request: HttpRequest, *args: Any) -> LogEntry:
        return journal.placed(super().log_addition(request, *args))

    def log_change(self, request: HttpRequest, *args: Any) -> LogEntry:
        return journal.placed(super().log_change(request, *args))

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        if journal.is_home():
            return super().log_deletions(request, queryset)
        return journal.note(request, [(row, "") for row in queryset], flag=DELETION)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        # From Django 6.1 on it asks for the actions of a place. The page of one row has buttons for
        # the acts (see ``verbs``), so there it gets only actions that are meant for that page.
        if IS_POPUP_VAR in request.GET:
            return {}
        place = {} if action_location is None else {"action_location": action_location}
        given: dict[str, Any] = super().get_actions(request, **place)
        if action_location is not None and action_location.name != "CHANGE_LIST":
            return given
        return {**acts.actions(self.model, request.user), **given}

    def possible_verbs(self, row: Any) -> Mapping[str, Any]:
        """Return the verbs that are possible for this row as it is."""
        return {**acts.buttons(self.model, row), **self.verbs}

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = kwargs.get("obj")
        if row is not None:
            allowed = self.get_actions(request)
            possible = self.possible_verbs(row)
            context["subtitle"] = label(row)
            context["verbs"] = [(name, text) for name, text in possible.items() if name in allowed]
        return super().render_change_form(request, context, *args, **kwargs)


class LargeAdmin(StreamsAdmin):
    """The admin of a table that grows with the traffic: sorted only as its indexes are."""

    sortable_by = ()
    list_max_show_all = 0

    def get_search_fields(self, request: HttpRequest) -> Any:
        # Search only on its own list, which is limited, and not for the admin's autocomplete.
        own = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        match = request.resolver_match
        return self.search_fields if match and match.url_name == own else ()

    def search(self, request: HttpRequest) -> Search:
        return Search.parse(request.GET.get("q", ""))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        search = Search.parse(search_term)
        return queryset.filter(self.found(search)) if search.text else queryset, False

    def found(self, search: Search) -> Q:
        """Return the rows that the search finds; without a search, all rows of the list."""
        return Q()


class ReadOnly(StreamsAdmin):
    """The admin of rows that only EMS itself may write."""

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.layout = shown(model, self.fields or ())

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.layout

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return flatten(self.get_fields(request, obj))
