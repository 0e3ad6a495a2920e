"""Shows how far behind the groups were in the last days, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.charts.chart import Chart, Line
from monitoring.figures.history import History, history
from monitoring.figures.rollups import HIGHEST
from monitoring.live.limits import LISTED_AT_MOST
from monitoring.models import Grain
from monitoring.pages.asked import HOURS, Choice
from monitoring.pages.base import FiguresPage
from streams.log.lag import lags
from streams.models import ConsumerGroup

RANGES = ("7d", "30d", "90d")
# In lines of the chart: the groups that were behind most.
LINES = 5
SAMPLED = {
    Grain.HOUR: _("sampled; of each hour the first"),
    Grain.DAY: _("sampled; of each day the highest of four"),
}


class BacklogPage(FiguresPage):
    name = "backlog"
    route = "backlog/"
    title = _("Backlog")
    template_name = "ems_monitoring/backlog.html"
    permissions = ("ems.view_consumergroup",)
    tab = "backlog"

    @property
    def shown(self) -> str:
        """Return the range: the shortest one if the URL asks a shorter one of the other pages."""
        return self.asked.range if self.asked.range in RANGES else RANGES[0]

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        using = self.using
        groups = ConsumerGroup.objects.using(using).select_related("topic").order_by("pk")
        # Nothing is counted: the page shows neither retries nor dead letters.
        found = lags(groups, using, {})
        length = timedelta(hours=HOURS[self.shown])
        past = history(using, self.now, length, found)
        return {
            "shown": self.shown,
            "is_hourly": past.grain == Grain.HOUR,
            "groups": past.groups[:LISTED_AT_MOST],
            "groups_in_all": len(past.groups),
            "late_now": sum(bool(one.level) for one in past.groups),
            "behind": sum(one.behind or 0 for one in past.groups),
            "by_spark": past.until is not None,
            "happened": self.happened(past.starts[0], (lag.group for lag in found)),
            "charts": charts(past),
        }

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        groups = figures["groups"]
        kept = self.choices(request)["range"]
        ranges = [
            Choice(one.text, one.url, one.text == self.shown) for one in kept if one.text in RANGES
        ]
        return {
            "ranges": ranges,
            "form": "j M H:i" if figures["is_hourly"] else "j M",
            "late": [one for one in groups if one.late or one.level],
            "calm": [one for one in groups if not one.late and not one.level],
            "long_query": self.asked.query(range=self.shown),
            "most": max(groups, key=lambda one: one.most or 0, default=None),
            "longest": max(groups, key=lambda one: one.late, default=None),
        }


def charts(past: History) -> dict[str, Chart]:
    note = (HIGHEST if past.until else SAMPLED)[past.grain]
    worst = sorted(past.groups, key=lambda one: (-(one.most or 0), one.name))[:LINES]
    late = Line(str(_("groups")), past.late)
    lines = [Line(one.label, one.behind_series) for one in worst if one.most]
    return {
        "late": Chart(
            "late",
            _("Groups with a message older than 10 minutes"),
            "",
            past.starts,
            [late],
            note=note,
        ),
        "behind": Chart(
            "behind",
            _("Messages behind: the groups that were behind most"),
            "",
            past.starts,
            lines,
            note=note,
            empty=_("No group was behind.") if any(one.known for one in past.groups) else "",
        ),
    }
