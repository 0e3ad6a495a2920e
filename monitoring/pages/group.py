"""Shows a group: how far it is, what its clients have in hand, and what can be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.charts.chart import DURATION, Chart, Line
from monitoring.figures.errors import Errors, errors_by_spark, errors_of_letters
from monitoring.figures.group import GroupFigures, group_figures
from monitoring.figures.rollups import Backlog, Latencies, backlogs, latencies, note
from monitoring.figures.site import Site
from monitoring.live.clients import clients
from monitoring.live.inbox import PartitionNow
from monitoring.models import ErrorClass
from monitoring.pages.base import FiguresPage
from monitoring.pages.consumption import ConsumptionPage
from monitoring.sample.periods import Periods, total
from streams.admin.parts.columns import list_url
from streams.consume.blocked import Blockade, blockades
from streams.log.lag import CursorPlace, Lag
from streams.models import ConsumerGroup, DeadMessage, Message
from streams.operate.acts.unblock import UNBLOCKING

# In partitions: those that are furthest behind.
SHOWN = 50

PERCENTILES = ("p50", "p95", "p99")
BY_SPARK = _("Spark adds how long messages take: python manage.py ems_spark rollup")
ELSEWHERE = _("In this range only what blocks the group has failed: see the top of the page.")


@dataclass(frozen=True)
class PartitionProgress:
    """How far the group is in one partition."""

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


class GroupPage(FiguresPage):
    name = "group"
    route = "groups/<int:group>/"
    title = _("Group")
    template_name = "ems_monitoring/group.html"
    permissions = ("ems.view_consumergroup",)
    tab = "groups"

    group: ConsumerGroup

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        using, now = self.using, self.now
        site = Site.read(
            using, now, self.asked.length, group=arguments["group"], alarms=self.alarms()
        )
        if not site.lags:
            raise Http404
        (lag,) = site.lags
        self.group = lag.group
        (figures,) = group_figures(site)
        took = latencies(using, site.periods, [lag.group.pk]).get(lag.group.pk)
        errors, by_spark = self.errors(lag, site.periods, took)
        sampled = {lag.group.pk: site.readers.get(lag.group.pk)}
        behind = backlogs(using, site.periods, sampled)[lag.group.pk]
        blockade = self.blockade(lag.group) if lag.blocked else None
        drawn = {}
        if errors:
            empty = ELSEWHERE if blockade else _("No failure is known in this range.")
            drawn = {"errors": failures(site, errors, empty, by_spark=by_spark)}
        return {
            "group": figures,
            "blockade": blockade,
            "percentiles": took.recent if took else None,
            "places": self.places(lag.places, site.partitions)[:SHOWN],
            "places_in_all": len(lag.places),
            "clients": clients(using, lag.group.pk, now, idle=not lag.open),
            "errors": errors.classes if errors else None,
            "errors_by_spark": by_spark,
            "happened": self.happened(
                site.periods.first, [lag.group], lag.group.topic, is_one=True
            ),
            "charts": {**charts(site, figures, behind), "latency": latency(site, took), **drawn},
        }

    def blockade(self, group: ConsumerGroup) -> Blockade | None:
        found = blockades([group], self.using).get(group.pk)
        return found if found is None or self.may_view(Message) else found.without_errors()

    def errors(
        self, lag: Lag, periods: Periods, took: Latencies | None
    ) -> tuple[Errors | None, bool]:
        """Return the classes of errors, and whether Spark has counted them.

        Each source needs the permission to view its table; None where none is left.
        """
        by_letter = self.may_view(DeadMessage)
        if self.may_view(ErrorClass) and (took or not lag.dead or not by_letter):
            done = [n for n, value in enumerate(took.lines[0]) if value is not None] if took else []
            found = errors_by_spark(self.using, lag.group.pk, periods, done)
            return found, bool(found.classes)
        if not by_letter:
            return None, False
        return errors_of_letters(self.using, lag.group.pk, periods), False

    def heading(self, figures: Mapping[str, Any]) -> Any:
        group: Any = self.group
        return _("%(group)s on %(topic)s") % {"group": group.name, "topic": group.topic.name}

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this user may do with the group, and where its dead letters are."""
        every = self.verbs(self.group)
        verbs = every and [one for one in every if one[0] not in UNBLOCKING]
        unblock = [one for one in every or () if one[0] in UNBLOCKING]
        may_see = every is not None and request.user.has_perm("ems.view_deadmessage")
        letters = list_url(DeadMessage, group=self.group.pk, state="waiting") if may_see else ""
        may_see_who = ConsumptionPage.is_for(request.user)
        return {
            "verbs": verbs,
            "unblock": unblock,
            "letters_url": letters,
            "consumption_url": ConsumptionPage.url(self.group.pk) if may_see_who else "",
        }

    def places(
        self, cursors: Sequence[CursorPlace], partitions: Sequence[PartitionNow]
    ) -> list[PartitionProgress]:
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
                PartitionProgress(
                    partition=state.pk,
                    number=state.number,
                    first_offset=state.first_offset,
                    next_offset=cursor.end,
                    at=cursor.next_offset,
                    behind=cursor.end - cursor.next_offset,
                    retry=cursor.retry,
                    is_blocked=cursor.is_blocked,
                    attempt=cursor.attempt,
                    blocked_for=blocked_for,
                )
            )
        return sorted(found, key=lambda one: (not one.is_blocked, -one.behind, one.number))


def charts(site: Site, figures: GroupFigures, behind: Backlog) -> dict[str, Chart]:
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
            [
                Line(str(_("behind")), behind.behind),
                *([Line(str(_("at least")), behind.least)] if behind.note else []),
            ],
            note=behind.note,
        ),
        "age": Chart(
            "age",
            _("Age of the oldest unfinished message"),
            DURATION,
            times,
            [Line(str(_("age")), behind.age)],
            note=behind.note,
        ),
        "failed": Chart(
            "failed",
            _("Retries and dead letters that wait"),
            "",
            times,
            [
                Line(str(_("retries")), behind.waiting),
                Line(str(_("dead letters")), behind.dead),
            ],
            note=behind.note,
        ),
    }


def latency(site: Site, took: Latencies | None) -> Chart:
    """Return the chart of how long messages took."""
    times = site.periods.starts
    nothing: Sequence[float | None] = [None] * len(times)
    lines = took.lines if took else [nothing] * len(PERCENTILES)
    return Chart(
        "latency",
        _("From the send until done"),
        DURATION,
        times,
        [Line(name, values) for name, values in zip(PERCENTILES, lines, strict=True)],
        note=note(site.periods),
        empty=BY_SPARK,
    )


def failures(site: Site, errors: Errors, empty: Any, *, by_spark: bool) -> Chart:
    """Return the chart of the classes of errors, one on the other."""
    shorts = Counter(short(name) for name, _values in errors.lines)
    lines = [
        Line(short(name) if shorts[short(name)] == 1 else name, values)
        for name, values in errors.lines
    ]
    return Chart(
        "errors",
        _("Failed attempts a minute") if by_spark else _("Dead letters a minute that wait"),
        "",
        site.periods.starts,
        lines,
        note=_("by Spark, by class of error") if by_spark else _("live, by class of error"),
        empty=empty,
        is_stacked=True,
    )


def short(name: str) -> str:
    """Return the name of a class without its module."""
    return name.rpartition(".")[2] or str(_("other classes"))
