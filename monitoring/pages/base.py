"""Defines what the pages of the monitoring have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.admin import site
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views import View

from monitoring.alarms.unresolved import unresolved
from monitoring.figures.flags import Happened, PageGroups, happened
from monitoring.models import Alarm
from monitoring.pages.asked import Asked
from streams.conf import database
from streams.database.clock import database_now
from streams.database.snapshot import snapshot
from streams.models import ConsumerGroup, Topic
from streams.nouns.noun import NounEncoder
from streams.sharding import is_sharded

# What every page asks of its user, beside its own permissions.
VIEW = "ems_monitoring.view_overview"

# Parameters of the URL that are of one answer, not of the page.
NOT_KEPT = {*Asked.CHOICES, "format"}


@dataclass(frozen=True)
class Tab:
    """One entry of the navigation."""

    title: Any
    url: str
    is_here: bool


class FiguresPage(View):
    """A page that answers with HTML, or with the same figures as JSON at ``?format=json``.

    A subclass says its ``name`` (the URL's is admin:ems_monitoring_overview_NAME), its ``route``,
    ``title`` and ``template_name``, and returns the figures.
    """

    name: ClassVar[str]
    route: ClassVar[str]
    title: ClassVar[Any]
    template_name: ClassVar[str]
    # More permissions than VIEW: those of the tables that the page shows.
    permissions: ClassVar[tuple[str, ...]] = ()
    # The name of the tab that leads here, or under which this page stands; "" has none.
    tab: ClassVar[str] = ""

    http_method_names = ["get", "head", "options"]

    # Given by the admin.
    admin: Any = None
    pages: Sequence[type[FiguresPage]] = ()

    asked: Asked
    using: str
    now: datetime

    @classmethod
    def url(cls, *args: Any) -> str:
        return reverse(f"admin:ems_monitoring_overview_{cls.name}", args=args)

    @classmethod
    def is_for(cls, user: Any) -> bool:
        """Tell whether the user may see this page."""
        return bool(user.has_perms((VIEW, *cls.permissions)))

    def may_view(self, model: type[Model]) -> bool:
        """Tell whether the user may view the rows of this table, as the admin does."""
        user: Any = self.request.user
        names = (get_permission_codename(verb, model._meta) for verb in ("view", "change"))
        return any(user.has_perm(f"{model._meta.app_label}.{name}") for name in names)

    def alarms(self) -> list[Alarm]:
        """Return the alarms that are not resolved, if the user may view them. One statement."""
        return unresolved(self.using) if self.may_view(Alarm) else []

    def happened(
        self,
        first: datetime,
        groups: Iterable[ConsumerGroup],
        topic: Topic | None = None,
        *,
        is_one: bool = False,
    ) -> Happened:
        """Return what the charts mark from ``first`` on: of a topic, of one group, or of all.

        The alarms, if the user may view them. Two statements.
        """
        shown = PageGroups({group.pk: group for group in groups}, topic, is_one)
        return happened(self.using, first, self.now, shown, alarms=self.may_view(Alarm))

    def verbs(self, row: Any) -> list[tuple[str, Any]] | None:
        """Return (name, text) of what this user may do with the row, by the admin's page of it.

        None if the project has taken that page out of its admin.
        """
        registered: Any = site._registry.get(type(row))
        if registered is None:
            return None
        allowed = registered.get_actions(self.request)
        possible = registered.possible_verbs(row)
        return [(name, text) for name, text in possible.items() if name in allowed]

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        """Return what the page shows: plain values, dataclasses and lists of them.

        What is of a table that only some of its users may view is None for the others.
        """
        raise NotImplementedError

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not self.is_for(request.user):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, **arguments: Any) -> HttpResponse:
        self.asked = Asked.of(request.GET)
        self.using = database()
        with snapshot(self.using):  # figures of one moment, whatever is written meanwhile
            self.now = database_now(self.using)
            figures = self.figures(**arguments)
        if request.GET.get("format") == "json":
            about: dict[str, Any] = {"as_of": self.now, "range": self.asked.range}
            if is_sharded():
                about["database"] = self.using
            return JsonResponse({**about, **figures}, encoder=NounEncoder)
        return self.render(request, figures)

    def render(self, request: HttpRequest, figures: Mapping[str, Any]) -> HttpResponse:
        request.current_app = self.admin.admin_site.name
        frame = {
            **self.admin.admin_site.each_context(request),
            "is_nav_sidebar_enabled": False,  # the tables need the width
            "opts": self.admin.opts,
            "page": self,
            "title": self.heading(figures),
            "tabs": self.tabs(request),
            "as_of": self.now,
            "asked": self.asked,
            "choices": self.choices(request),
            "query": self.asked.query(),
            "may_see_groups": request.user.has_perm("ems.view_consumergroup"),
            "may_see_topics": request.user.has_perm("ems.view_topic"),
            "may_see_letters": request.user.has_perm("ems.view_deadmessage"),
        }
        frame |= self.more(request, figures)
        return TemplateResponse(request, self.template_name, {**frame, **figures})

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the HTML shows beside the figures, such as what this user may do."""
        return {}

    def heading(self, figures: Mapping[str, Any]) -> Any:
        return self.title

    def tabs(self, request: HttpRequest) -> list[Tab]:
        """Return the pages that have a tab and that this user may see."""
        query = self.asked.query()
        return [
            Tab(page.title, page.url() + query, page.tab == self.tab)
            for page in self.pages
            if page.tab == page.name and page.is_for(request.user)
        ]

    def choices(self, request: HttpRequest) -> dict[str, Any]:
        kept = request.GET.copy()
        for name in NOT_KEPT & set(kept):
            del kept[name]
        return {name: self.asked.choices(name, kept.urlencode()) for name in Asked.CHOICES}
