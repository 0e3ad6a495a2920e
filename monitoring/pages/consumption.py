"""Shows who has handled what for a group: clients and their threads, over minutes to 90 days."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.charts.chart import Chart, Line
from monitoring.figures.consumption import HandledByGroup, handling
from monitoring.live.levels import DAY
from monitoring.live.pipeline import pipeline
from monitoring.models import Grain
from monitoring.pages.asked import order_choices, order_of
from monitoring.pages.base import FiguresPage
from streams.models import ConsumerGroup
from streams.observe.producers import who_is

ORDERS = {
    "messages": _("messages"),
    "failures": _("failures"),
    "time": _("time"),
    "longest": _("longest call"),
}
TITLES: dict[int, Any] = {
    1: _("Messages handled in each minute"),
    Grain.HOUR: _("Messages handled in each hour"),
    Grain.DAY: _("Messages handled on each day"),
}


class ConsumptionPage(FiguresPage):
    name = "consumption"
    route = "groups/<int:group>/consumption/"
    title = _("Who handled what")
    template_name = "ems_monitoring/consumption.html"
    permissions = ("ems.view_consumergroup", "ems_monitoring.view_consumption")
    tab = "groups"

    group: ConsumerGroup

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        groups = ConsumerGroup.objects.using(self.using).select_related("topic")
        group = groups.filter(pk=arguments["group"]).first()
        if group is None:
            raise Http404
        self.group = group
        query = self.request.GET
        order, client = order_of(query, ORDERS), query.get("client", "")
        found = handling(self.using, group.pk, self.now, self.asked.length, order, client)
        return {
            "group": {
                "pk": group.pk,
                "name": group.name,
                "topic": group.topic.name,
                "topic_pk": group.topic_id,
            },
            "by": order,
            "client": client,
            "rolled_up_until": pipeline(self.using, self.now, "consumption").until,
            "handling": found,
            "happened": self.happened(found.since, [group], group.topic, is_one=True),
            "chart": chart(found),
        }

    def heading(self, figures: Mapping[str, Any]) -> Any:
        group: Any = self.group
        return _("%(group)s on %(topic)s") % {"group": group.name, "topic": group.topic.name}

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return how precisely the figures say when somebody was at work last."""
        return {"last_form": "H:i" if self.asked.length <= DAY else "Y-m-d"}

    def choices(self, request: HttpRequest) -> dict[str, Any]:
        return {**super().choices(request), "by": order_choices(request.GET, ORDERS)}


def chart(found: HandledByGroup) -> Chart:
    """Return the chart of the messages, one client on the other."""
    lines = [
        Line(" ".join(who_is(name)[:2]) if name else str(_("other clients")), values)
        for name, values in found.lines
    ]
    return Chart(
        "handled",
        TITLES[found.grain],
        "",
        found.times,
        lines,
        note=_("by Spark, by client"),
        empty=_("Nothing was handled in this range, as far as Spark has counted."),
        is_stacked=True,
    )
