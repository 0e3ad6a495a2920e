"""Shows how the databases of EMS["SHARDS"] are: the switch, and the alarms at the top of a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.admin.alarm import Said, alarm, glance
from streams.admin.parts.links import naming
from streams.admin.parts.look import level_of, look
from streams.admin.switch import Switch, chosen
from streams.conf import database
from streams.database.each import Reply, ReplyState
from streams.sharding import aliases, is_sharded

# Of the other databases that need somebody: what stands beside the switch, which has them all.
WORST = 3

_SILENT = {
    ReplyState.AWAY: gettext_lazy("It does not answer."),
    ReplyState.ASKED: gettext_lazy("It is still being asked."),
}


@dataclass(frozen=True)
class DatabaseChoice:
    """What the switch shows of a database; ``text`` is empty if it was not asked."""

    alias: str
    url: str
    is_here: bool
    text: str = ""
    level: str = ""
    said: Any = ""

    @classmethod
    def of(cls, seen: Reply[Said], url: str) -> DatabaseChoice:
        level = level_of(seen)
        if silent := _SILENT.get(seen.state):
            word = _("away") if seen.state is ReplyState.AWAY else _("slow")
            return cls(seen.alias, url, False, word, level, silent)
        said = seen.said[0].text
        return cls(seen.alias, url, False, _("alarm") if said else _("healthy"), level, said)


@dataclass(frozen=True)
class Databases:
    """What the switch shows; without choices, the page is of one database only."""

    alias: str
    choices: list[DatabaseChoice]

    @property
    def in_trouble(self) -> list[DatabaseChoice]:
        return [one for one in self.choices if one.said]

    @property
    def worst(self) -> list[DatabaseChoice]:
        return self.in_trouble[:WORST]

    @property
    def more(self) -> int:
        return len(self.in_trouble[WORST:])


@dataclass(frozen=True)
class AlarmNotice:
    """A sentence for the top of a page, and the page that it leads to, if there is one.

    One of another database has a link there, too.
    """

    text: Any
    page: str = ""
    alias: str = ""
    url: str = ""


def databases(request: HttpRequest) -> Databases | None:
    """Return what the switch of this page shows; None if all topics are on one database.

    The other databases are asked few questions each, at once and for a second at most. On a page
    of none, its alarms say how they are.
    """
    if not is_sharded():
        return None
    switch = _switch(request)
    rights = rights_of(request)
    may = rights.__contains__
    others = [alias for alias in switch.urls if alias != switch.alias and _is_of_one(request)]
    found = look(("glance", rights), others, lambda alias: [glance(alias, may)])
    seen = {one.alias: one for one in found}
    return Databases(
        switch.alias,
        [
            DatabaseChoice.of(seen[alias], url)
            if alias in seen
            else DatabaseChoice(alias, url, alias == switch.alias)
            for alias, url in switch.urls.items()
        ],
    )


def alarms(request: HttpRequest) -> list[AlarmNotice]:
    """Return the alarm of the page's database; on a page of none, those of all databases."""
    if not is_sharded() or _is_of_one(request):
        said = alarm(database(), request.user.has_perm)
        return [AlarmNotice(said.text, page_url(request, said))] if said.text else []
    rights, urls = rights_of(request), _switch(request).urls
    may = rights.__contains__
    found = []
    for seen in look(("alarm", rights), aliases(), lambda alias: [alarm(alias, may)]):
        silent = _SILENT.get(seen.state)
        said = Said(str(silent)) if silent else seen.said[0]
        if said.text:
            page = page_url(request, said, seen.alias)
            found.append(AlarmNotice(said.text, page, seen.alias, urls[seen.alias]))
    return found


def page_url(request: HttpRequest, said: Said, alias: str = "") -> str:
    """Return where the sentence leads to, on the database ``alias`` if there are several."""
    url = said.link.url(getattr(request, "current_app", None)) if said.link else ""
    return naming(url, alias) if url and alias else url


def _is_of_one(request: HttpRequest) -> bool:
    """Tell whether the page works on one database, as all but the start page of the app do."""
    return hasattr(request, "ems_switch")


def rights_of(request: HttpRequest) -> frozenset[str]:
    """Return all permissions that the user of the request has.

    What a thread says is a function of these alone: so it may be shown to all who have the same.
    A backend may know of permissions that it does not list, so it is asked for those of the tables.
    """
    user: Any = request.user
    found = set(user.get_all_permissions())
    for about in (model._meta for model in apps.get_models()):
        own = [get_permission_codename(verb, about) for verb in about.default_permissions]
        names = [*own, *(name for name, _title in about.permissions)]
        found.update(name for each in names if user.has_perm(name := f"{about.app_label}.{each}"))
    return frozenset(found)


def _switch(request: HttpRequest) -> Switch:
    """Return the switch of the page; on one that works on no database, where its links lead."""
    found: Switch | None = getattr(request, "ems_switch", None)
    if found is not None:
        return found
    return Switch(chosen(request), {alias: naming(_first(request), alias) for alias in aliases()})


def _first(request: HttpRequest) -> str:
    """Return the first page that this user may see."""
    user: Any = request.user
    here = request.current_app if hasattr(request, "current_app") else None
    if user.has_perm("ems_monitoring.view_overview"):
        try:
            return reverse("admin:ems_monitoring_overview_changelist", current_app=here)
        except NoReverseMatch:  # taken out of the admin
            pass
    return reverse("admin:ems_topic_changelist", current_app=here)
