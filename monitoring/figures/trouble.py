"""Says what is wrong in a few sentences, for the index of the admin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from monitoring.alarms.banner import link_to
from monitoring.alarms.texts import span
from monitoring.alarms.unresolved import unresolved
from monitoring.figures.firing import Firing, firing
from monitoring.figures.group import GroupFigures, group_figures
from monitoring.figures.site import Site
from monitoring.models import AlarmState, Severity
from streams.admin.alarm import Link, May, Said
from streams.admin.parts.figures import BAD, QUIET, WARNING, grouped
from streams.database.clock import database_now
from streams.log.condition import Trouble

# Of the alarms, and of the groups: the rest is on their own pages.
SHOWN = 5
LEVELS = {Severity.CRITICAL: BAD, Severity.WARNING: WARNING, Severity.INFO: QUIET}


def trouble(using: str, may: May) -> Iterator[Said]:
    """Yield the alarms that fire, then the groups in trouble, the worst first."""
    now = database_now(using)
    alarms = unresolved(using) if may("ems_monitoring.view_alarm") else []
    found = firing(alarms)
    # One that is acknowledged stays beside the line of its group: it says who takes care.
    open_ones = (one for one in alarms if one.group and not one.acknowledged_by)
    about = {one.pk: f"{one.group} on {one.topic}" for one in open_ones}
    for one in found[:SHOWN]:
        yield replace(_alarm(one, now, may), about=about.get(one.pk, ""))
    if found[SHOWN:]:
        text, rest = _("More alarms fire."), found[SHOWN]
        yield Said(text, link_to(may, rest.pk), _("more"), LEVELS[Severity(rest.severity)])
    if may("ems_monitoring.view_overview"):
        figures = group_figures(Site.read(using, now, alarms=alarms))
        groups = [one for one in figures if one.needs]
        yield from (_group(one, may) for one in groups[:SHOWN])
        if rest_of_groups := len(groups[SHOWN:]):
            text = ngettext(
                "%d more group needs attention.", "%d more groups need attention.", rest_of_groups
            )
            page = Link("ems_monitoring_overview_groups")
            yield Said(text % rest_of_groups, page, _("more"), _level(groups[SHOWN]))


def _alarm(one: Firing, now: datetime, may: May) -> Said:
    text = _("%(alarm)s, for %(age)s") % {"alarm": one.text, "age": span(now - one.since)}
    severity = Severity(one.severity)
    if one.acknowledged_by:
        text = _("%(alarm)s; %(who)s takes care of it") % {
            "alarm": text,
            "who": one.acknowledged_by,
        }
        return Said(text, link_to(may, one.pk), AlarmState.ACKNOWLEDGED.label, QUIET)
    return Said(text, link_to(may, one.pk), severity.label, LEVELS[severity])


def _group(one: GroupFigures, may: May) -> Said:
    worst = one.needs[0]
    told = [worst.told] if worst.told else []
    if one.behind:
        told.append(_("%s behind") % grouped(one.behind))
    if one.dead:
        told.append(ngettext("%s dead letter", "%s dead letters", one.dead) % grouped(one.dead))
    place = _("%(group)s on %(topic)s") % {"group": one.name, "topic": one.topic}
    page = Link("ems_monitoring_overview_group", (one.pk,))
    return Said(
        f"{place}: {', '.join(told)}",
        page if may("ems.view_consumergroup") else None,
        worst.trouble.label,
        _level(one),
        about=f"{one.name} on {one.topic}",
        covers=True,
    )


def _level(one: GroupFigures) -> str:
    return WARNING if one.needs[0].trouble in (Trouble.DEAD, Trouble.PAUSED) else BAD
