"""Ranks all topics by a figure of a time, and shows what has changed since the time before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from monitoring.figures.ranking import ranked
from monitoring.figures.site import Site
from monitoring.figures.topic import topic_figures
from monitoring.live.limits import LISTED_AT_MOST
from monitoring.live.pipeline import pipeline
from monitoring.pages.asked import order_choices, order_of, times_of
from monitoring.pages.base import FiguresPage

ORDERS = {
    "messages": _("messages"),
    "bytes": _("bytes"),
    "failures": _("failures"),
    "lag": _("behind"),
}
# Before this year there was no EMS, and instants end somewhere.
OLDEST = datetime(2000, 1, 1, tzinfo=UTC)
TIMES = ("since", "until")
LONGEST, SHORTEST = timedelta(days=366), timedelta(minutes=1)


class TopicsPage(FiguresPage):
    name = "topics"
    route = "topics/"
    title = _("Topics")
    template_name = "ems_monitoring/topics.html"
    permissions = ("ems.view_topic",)
    tab = "topics"

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        between, error = self.between()
        site = Site.read(self.using, self.now)
        spark = pipeline(self.using, self.now)
        order = order_of(self.request.GET, ORDERS)
        ranking = ranked(site, spark, self.asked.length, order, between)
        shown = ranking.topics[:LISTED_AT_MOST]
        live = {one.pk: one for one in topic_figures(site, {})}
        return {
            "topics": [replace(live[one.pk], in_range=one.messages.now) for one in shown],
            "topics_in_all": len(ranking.topics),
            "ranking": replace(ranking, topics=shown),
            "is_between": between is not None,
            "is_late": ranking.by_spark and spark.is_late and between is None,
            "error": error,
        }

    def between(self) -> tuple[tuple[datetime, datetime] | None, str]:
        """Return the time that the URL says instead of a range until now, and what is wrong."""
        times, error = times_of(self.request.GET)
        since, until = times["since"], times["until"]
        if since is None and until is None:
            return None, error
        until = min(until or self.now, self.now)
        if until < OLDEST:
            return None, gettext("The time lies before there was anything.")
        since = max(since or until - self.asked.length, until - LONGEST)
        if until - since < SHORTEST:
            return None, gettext("The time must end a minute after its beginning, or later.")
        return (since, until), ""

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the row of each topic, and what the fields of the times say."""
        rows = zip(figures["topics"], figures["ranking"].topics, strict=True)
        typed = {name: request.GET.get(name, "") for name in TIMES}
        others = {*TIMES, "format"}
        kept = {name: value for name, value in request.GET.items() if name not in others}
        return {"rows": list(rows), "typed": typed, "kept": kept}

    def choices(self, request: HttpRequest) -> dict[str, Any]:
        """Return the choices; that of a range takes the place of a time that was typed."""
        query, found = request.GET, super().choices(request)
        order = f"by={order_of(query, ORDERS)}" if "by" in query else ""
        ranges = self.asked.choices("range", order)
        if any(query.get(name) for name in TIMES):
            ranges = [replace(one, is_chosen=False) for one in ranges]
        return {**found, "range": ranges, "by": order_choices(query, ORDERS)}
