"""Shows a group: how far it is, what its clients have in hand, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.charts.chart import DURATION, Chart, Line
from monitoring.figures.group import GroupFigures, group_figures
from monitoring.figures.site import Site
from monitoring.live.clients import clients
from monitoring.live.errors import error_classes, letter_classes
from monitoring.live.inbox import PartitionState
from monitoring.live.pipeline import percentiles
from monitoring.models import ErrorClass
from monitoring.pages.base import Page
from monitoring.sample.periods import total
from streams.admin.parts.columns import list_url
from streams.log.lag import CursorPlace, Lag
from streams.models import ConsumerGroup, DeadMessage

# In partitions: those that are furthest behind.
SHOWN = 50


@dataclass(frozen=True)
class Place:
    """Holds how far the group is in one partition."""

    partition: int
    number: int
    first_offset: int
    next_offset: int  # of the partition
    at: int  # the next offset that the group claims
    behind: int
    retry: int | None  # the lowest offset to be retried
    is_blocked: bool
    attempt: int
    blocked_for: timedelta | None


class GroupPage(Page):
    name = "group"
    route = "groups/<int:group>/"
    title = _("Group")
    template_name = "ems_monitoring/group.html"
    permissions = ("ems.view_consumergroup",)
    tab = "groups"

    group: ConsumerGroup

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        using, now = self.using, self.now
        site = Site.read(using, now, self.asked.length, group=arguments["group"])
        if not site.lags:
            raise Http404
        (lag,) = site.lags
        self.group = lag.group
        (figures,) = group_figures(site)
        times = percentiles(using, now, [lag.group.pk]).get(lag.group.pk)
        errors, by_spark = self.errors(lag, site.periods.first if times else None)
        return {
            "group": figures,
            "percentiles": times,
            "places": self.places(lag.places, site.partitions)[:SHOWN],
            "places_in_all": len(lag.places),
            "clients": clients(using, lag.group.pk, now, idle=not lag.open),
            "errors": errors,
            "errors_by_spark": by_spark,
            "charts": charts(site, figures),
        }

    def errors(
        self, lag: Lag, rolled_up_since: datetime | None
    ) -> tuple[Sequence[tuple[str, int, datetime]] | None, bool]:
        """Return the classes of errors, and whether Spark has counted them.

        Each source needs the permission to view its table; None where none is left.
        """
        by_spark, by_letter = self.may_view(ErrorClass), self.may_view(DeadMessage)
        found: Sequence[tuple[str, int, datetime]] = ()
        if by_spark and rolled_up_since is not None:
            found = error_classes(self.using, lag.group.pk, rolled_up_since)
        if found or not by_letter:
            return found or None, bool(found)
        return letter_classes(self.using, lag.group.pk) if lag.dead else (), False

    def heading(self, figures: Mapping[str, Any]) -> Any:
        return str(self.group)

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this user may do with the group, and where its dead letters are."""
        registered: Any = admin.site._registry.get(ConsumerGroup)
        if registered is None:
            return {}
        allowed = registered.get_actions(request)
        possible = registered.possible_verbs(self.group)
        may_see = request.user.has_perm("ems.view_deadmessage")
        letters = list_url(DeadMessage, group=self.group.pk, state="waiting") if may_see else ""
        return {
            "verbs": [(name, text) for name, text in possible.items() if name in allowed],
            "letters_url": letters,
        }

    def places(
        self, cursors: Sequence[CursorPlace], partitions: Sequence[PartitionState]
    ) -> list[Place]:
        """Return the partitions of the group, those that are furthest behind first."""
        states = {one.pk: one for one in partitions}
        found = []
        for cursor in cursors:
            state = states.get(cursor.partition)
            if state is None:  # it was deleted meanwhile
                continue
            until = cursor.blocked_until
            blocked_for = None if until is None else max(until - self.now, timedelta(0))
            found.append(
                Place(
                    partition=state.pk,
                    number=state.number,
                    first_offset=state.first_offset,
                    next_offset=cursor.end,
                    at=cursor.next_offset,
                    behind=cursor.end - cursor.next_offset,
                    retry=cursor.retry,
                    is_blocked=cursor.attempt > 1,
                    attempt=cursor.attempt,
                    blocked_for=blocked_for,
                )
            )
        return sorted(found, key=lambda one: (not one.is_blocked, -one.behind, one.number))


def charts(site: Site, figures: GroupFigures) -> dict[str, Chart]:
    """Return the charts of a group, all of them over the same times."""
    times = site.periods.starts
    nothing: list[float | None] = [None] * len(times)
    series = site.readers.get(figures.pk)
    into = total(one.published for one in site.log.values()) or nothing
    return {
        "rates": Chart(
            "rates",
            _("Messages a second"),
            "/s",
            times,
            [
                Line(str(_("into the topic")), into),
                Line(str(_("done by the group")), series.consumed if series else nothing),
            ],
        ),
        "behind": Chart(
            "behind",
            _("Messages behind"),
            "",
            times,
            [Line(str(_("behind")), series.behind if series else nothing)],
        ),
        "age": Chart(
            "age",
            _("Age of the oldest unfinished message"),
            DURATION,
            times,
            [Line(str(_("age")), series.age if series else nothing)],
        ),
        "failed": Chart(
            "failed",
            _("Retries and dead letters that wait"),
            "",
            times,
            [
                Line(str(_("retries")), series.waiting if series else nothing),
                Line(str(_("dead letters")), series.dead if series else nothing),
            ],
        ),
    }
