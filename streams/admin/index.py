"""Begins the index of the admin with what is wrong, and with links to the pages of EMS.

The index is of the whole project: nothing here may break it, and it waits for no database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import chain, islice
from typing import Any

from django.apps import apps
from django.db import Error
from django.db.models import Model
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template import Template
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from streams.admin.alarm import Link, May, Said, trouble
from streams.admin.parts.databases import page_url, rights_of
from streams.admin.parts.figures import BAD, WARNING, grouped
from streams.admin.parts.look import look
from streams.conf import database
from streams.database.each import ReplyState
from streams.database.retrying import tables_missing
from streams.log.counting import count_each
from streams.models import ConsumerGroup, DeadMessage, Message, Topic
from streams.sharding import aliases, is_sharded

APPS = ("ems", "ems_monitoring")
# Of what one database says of itself; apps limit what they say.
SHOWN = 5
# A count of the dead letters ends here.
COUNTED = 1_000
# In seconds: how long what a database has said is shown to all who have the same rights.
KEPT = 5.0
ORDER = {BAD: 0, WARNING: 1}


@dataclass(frozen=True)
class BoxLine:
    """A sentence of the box; ``alias`` is empty where there is one database."""

    said: Said
    url: str
    alias: str


@dataclass(frozen=True)
class Box:
    """What the index begins with: what is wrong, the worst first, and the pages of EMS."""

    lines: list[BoxLine]
    pages: list[tuple[str, str]]


def begin_index(site: Any) -> None:
    """Let the index of this AdminSite begin with the box, whatever its template is."""
    index: Callable[..., HttpResponseBase] = site.index
    if hasattr(index, "begins_with_ems"):
        return

    @wraps(index)
    def with_box(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = index(request, *args, **kwargs)
        if isinstance(response, TemplateResponse) and not response.is_rendered and _is_for(request):
            whole: Any = response.resolve_template(response.template_name)
            # One of another template language cannot be extended: it stays as it is.
            if isinstance(getattr(whole, "template", None), Template):
                more = {"ems_index": whole, "ems_box": _box(request)}
                response.context_data = {**(response.context_data or {}), **more}
                response.template_name = "admin/ems/index.html"
        return response

    with_box.begins_with_ems = True  # type: ignore[attr-defined]
    site.index = with_box


def _is_for(request: HttpRequest) -> bool:
    user: Any = request.user
    return any(user.has_module_perms(app) for app in APPS)


def _box(request: HttpRequest) -> Box:
    """Ask all databases at once, for a second at most; what is not said by then is missing."""
    rights = rights_of(request)
    may = rights.__contains__
    names = aliases() if is_sharded() else [database()]
    lines = []
    for seen in look(("box", rights), names, lambda alias: _said(alias, may), KEPT):
        covered = {one.about for one in seen.said if one.covers}
        told = [one for one in seen.said if one.covers or one.about not in covered]
        if seen.state is not ReplyState.WHOLE and told:
            text = _("The database %s has not answered everything within a second.") % seen.alias
            told.append(Said(text, state=_("slow"), level=WARNING))
        elif seen.state is ReplyState.ASKED:
            text = _("The database %s is still being asked.") % seen.alias
            told.append(Said(text, state=_("slow"), level=WARNING))
        elif seen.state is ReplyState.AWAY:
            text = _("The database %s has not answered within a second.") % seen.alias
            told.append(Said(text, state=_("away")))
        alias = seen.alias if is_sharded() else ""
        lines += [BoxLine(one, page_url(request, one, alias), alias) for one in told]
    lines.sort(key=lambda line: ORDER.get(line.said.level, len(ORDER)))
    return Box(lines, list(_pages(request, may)))


def _said(using: str, may: May) -> Iterator[Said]:
    try:
        # What takes longest comes last: what is not said in time is missing.
        yield from islice(trouble(using, may), SHOWN)
        yield from _letters(using, may)
        for config in apps.get_app_configs():
            if hasattr(config, "ems_trouble"):
                yield from config.ems_trouble(using, may)
    except Error as error:
        if not tables_missing(error):
            raise
        text = _("%(alias)s lacks tables of EMS: python manage.py migrate --database %(alias)s")
        yield Said(text % {"alias": using}, state=_("away"))


def _letters(using: str, may: May) -> Iterator[Said]:
    page = Link.to(may, DeadMessage, state="waiting")
    if page is None:
        return
    waiting = DeadMessage.objects.using(using).waiting()
    groups = ConsumerGroup.objects.using(using).values_list("pk", flat=True)
    counts = count_each({pk: waiting.filter(group=pk) for pk in groups}, COUNTED, using)
    total = min(COUNTED, sum(counts.values()))
    if not total:
        return
    count = f"{grouped(total)}{'+' if total == COUNTED else ''}"
    text = ngettext(
        "%s dead letter waits for a decision.", "%s dead letters wait for a decision.", total
    )
    yield Said(text % count, page, _("dead letters"), WARNING)


def _pages(request: HttpRequest, may: May) -> Iterator[tuple[str, str]]:
    """Yield title and URL of each page that the user may see."""
    site = getattr(request, "current_app", None)
    given = [config for config in apps.get_app_configs() if hasattr(config, "ems_pages")]
    found = [(title, Link(name)) for one in given for title, name in one.ems_pages(request.user)]
    models: tuple[type[Model], ...] = (DeadMessage,)
    if not found:
        models = (Topic, ConsumerGroup, Message, DeadMessage)
    own = ((one._meta.verbose_name_plural, Link.to(may, one)) for one in models)
    for title, link in chain(found, own):
        if link and (url := link.url(site)):
            yield capfirst(str(title)), url
