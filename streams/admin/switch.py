"""Lets each page of EMS work on one of the databases of EMS["SHARDS"]: the one that its URL names.

Without EMS["SHARDS"] nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.db import Error, connections
from django.http import (
    Http404,
    HttpRequest,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.log import log_response
from django.utils.translation import gettext as _

from streams.admin.parts.journal import parted
from streams.admin.parts.links import PARAMETER, Links, naming, without
from streams.conf import settings, working_on
from streams.database.retrying import connection_lost, tables_missing
from streams.sharding import aliases, is_sharded

View = Callable[..., HttpResponseBase]

# In the session: the database of the page that was opened last.
CHOSEN = "ems_database"
# What a script of a page sends: it looks again at its page, and chooses none.
BY_SCRIPT = ("X-Requested-With", "XMLHttpRequest")


@dataclass(frozen=True)
class Switch:
    """On which database a page works, and where it leads for each of the others."""

    alias: str
    urls: dict[str, str]


class OnItsDatabase:
    """A ModelAdmin whose views run, and are rendered, in ``working_on()``."""

    # False for a table that is on EMS["DATABASE"] only: its pages have no switch.
    per_database = True
    # Parameters of the URL that mean the same on each database.
    kept_parameters: tuple[str, ...] = ()

    opts: Any
    admin_site: Any

    @property
    def urls(self) -> list[URLPattern]:
        found: list[URLPattern] = self.get_urls()  # type: ignore[attr-defined]
        for pattern in found:
            pattern.callback = self._wrapped(pattern.callback, pattern.name or "")
        return found

    def list_name(self, name: str) -> str:
        """Return the name of the page to begin at on another database, for the page ``name``.

        Ids mean another row there, so no page of one row is right.
        """
        return f"{self.opts.app_label}_{self.opts.model_name}_changelist"

    def _wrapped(self, view: View, name: str) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            # Who must log in first comes back to the URL as it is.
            site = self.admin_site
            if not is_sharded() or not site.has_permission(request):
                return view(request, *args, **kwargs)
            home = settings().DATABASE
            if not self.per_database:
                _hide(request, Switch(home, {}))
                return view(request, *args, **kwargs)
            elsewhere, pk = parted(unquote(kwargs.get("object_id", "")))
            if elsewhere:  # an id as Django's log of the admin has it
                path = reverse(f"admin:{name}", args=[quote(pk)], current_app=site.name)
                return HttpResponseRedirect(naming(path, elsewhere))
            asked = _asked(request)
            # What is said after the path is an id, which alone means a row of EMS["DATABASE"].
            alias = asked or (home if kwargs else chosen(request))
            if asked is None and request.method in ("GET", "HEAD"):
                return HttpResponseRedirect(naming(request.get_full_path(), alias))
            if asked is None and chosen(request) != home:
                return _refused(request, alias)
            urls = self._urls(request, self.list_name(name))
            _hide(request, Switch(alias, urls))
            here = Here(alias, request, site)
            response = here.later(here.now(lambda: view(request, *args, **kwargs)))
            if request.method == "GET" and response.status_code < 400:
                _remember(request, alias)
            return response

        return answer

    def _urls(self, request: HttpRequest, name: str) -> dict[str, str]:
        kept = request.GET.copy()
        for parameter in set(kept) - set(self.kept_parameters):
            del kept[parameter]
        path = reverse(f"admin:{name}", current_app=self.admin_site.name)
        url = f"{path}?{kept.urlencode()}" if kept else path
        return {alias: naming(url, alias) for alias in aliases()}


def switched_paths(site: Any) -> Iterator[str]:
    """Yield where the pages begin that work on one of several databases."""
    for model, admin in site._registry.items():
        if isinstance(admin, OnItsDatabase) and admin.per_database:
            name = f"{model._meta.app_label}_{model._meta.model_name}_changelist"
            yield reverse(f"admin:{name}", current_app=site.name)


def chosen(request: HttpRequest) -> str:
    """Return the database of the page that was opened last, or ``EMS["DATABASE"]``."""
    found = request.session.get(CHOSEN)
    return found if found in aliases() else settings().DATABASE


def _asked(request: HttpRequest) -> str | None:
    """Return the database that the URL names, None if it names none; raises Http404."""
    named = set(request.GET.getlist(PARAMETER))
    if not named:
        return None
    if len(named) > 1 or not named <= set(aliases()):
        raise Http404(_("EMS has no database %r.") % ", ".join(sorted(named)))
    return named.pop()


def _hide(request: HttpRequest, switch: Switch) -> None:
    """Take the parameter out of the request: no view, filter or plan of many rows knows of it."""
    request.ems_switch = switch  # type: ignore[attr-defined]
    if PARAMETER in request.GET:
        query = without(request.GET)
        request.GET = query
        request.META = {**request.META, "QUERY_STRING": query.urlencode()}


def _refused(request: HttpRequest, alias: str) -> HttpResponseBase:
    text = _("Nothing was done: the page did not say its database, and %s is chosen now.")
    messages.error(request, text % chosen(request))
    return HttpResponseRedirect(naming(request.get_full_path(), alias))


def _remember(request: HttpRequest, alias: str) -> None:
    name, value = BY_SCRIPT
    if request.headers.get(name) != value and chosen(request) != alias:
        request.session[CHOSEN] = alias


class Here:
    """A context for one answer: it runs on its database, which its links name."""

    def __init__(self, alias: str, request: HttpRequest, site: Any) -> None:
        self.alias = alias
        self.request = request
        self.site = site
        self.links = Links(alias, tuple(switched_paths(site)))

    def now(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` returns; a page that says so if the database cannot be read."""
        try:
            with working_on(self.alias):
                return work()
        except Error as error:
            if not self._is_away(error):
                raise
            connections[self.alias].close()
            connections[self.alias].errors_occurred = False  # of a connection that is gone
            return self._away(error)

    def later(self, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response; what is rendered or sent later is so on the database, too."""
        if response.has_header("Location"):
            response["Location"] = self.links.url(response["Location"])
        if isinstance(response, StreamingHttpResponse) and not response.is_async:
            pieces = cast("Iterator[bytes]", response.streaming_content)
            response.streaming_content = self._each(pieces)
        elif isinstance(response, JsonResponse):
            response.content = self.links.json(response.text).encode()
        elif isinstance(response, TemplateResponse):
            self._render_later(response)
        return response

    def _render_later(self, response: TemplateResponse) -> None:
        render = response.render

        def rendered() -> TemplateResponse:
            answer: TemplateResponse = self.now(render)
            answer.content = self.links.html(answer.text)
            return answer

        if response.is_rendered:
            rendered()
        else:  # by Django, after its middleware has seen the context
            response.render = rendered  # type: ignore[method-assign]

    def _each(self, rest: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            with working_on(self.alias):
                try:
                    piece = next(rest)
                except StopIteration:
                    return
            yield piece

    def _is_away(self, error: Error) -> bool:
        """Tell whether it is this database; a page also reads users, and writes Django's log."""
        connection = connections[self.alias]
        has_never_answered = connection.connection is None
        is_lost = has_never_answered or connection_lost(error) or tables_missing(error)
        return connection.errors_occurred and is_lost

    def _away(self, error: Error) -> TemplateResponse:
        context = {
            **self.site.each_context(self.request),
            "title": _("The database %s cannot be read") % self.alias,
            "alias": self.alias,
            "is_empty": tables_missing(error),
            "may_be_done": self.request.method == "POST",
        }
        page = TemplateResponse(self.request, "admin/ems/away.html", context, status=503)
        page.render()
        text = "The database %s cannot be read: %s"
        log_response(text, self.alias, error, response=page, request=self.request, exception=error)
        return page
