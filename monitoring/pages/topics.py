"""Lists all topics, the busiest of the time range first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from monitoring.figures.site import Site
from monitoring.figures.topic import topic_figures
from monitoring.live.limits import LISTED_AT_MOST
from monitoring.live.pipeline import ranking
from monitoring.pages.base import FiguresPage
from monitoring.sample.periods import Periods
from monitoring.sample.series import starts


class TopicsPage(FiguresPage):
    name = "topics"
    route = "topics/"
    title = _("Topics")
    template_name = "ems_monitoring/topics.html"
    permissions = ("ems.view_topic",)
    tab = "topics"

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        periods = Periods.until(self.now, self.asked.length)
        site = Site.read(self.using, self.now)
        topics = topic_figures(site, starts(self.using, periods))
        return {
            "topics": topics[:LISTED_AT_MOST],
            "topics_in_all": len(topics),
            "ranking": ranking(self.using, periods.first, site.topics),
        }
