"""Shows the overview: is anything wrong, and where?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext_lazy as _

from monitoring.figures.firing import firing
from monitoring.figures.group import GroupFigures, group_figures
from monitoring.figures.site import Site
from monitoring.figures.topic import in_range, published_series, topic_figures
from monitoring.live.levels import TimeSpan
from monitoring.live.pipeline import percentiles, pipeline, ranking
from monitoring.live.steps import step_states
from monitoring.models import Alarm, Run
from monitoring.pages.base import FiguresPage
from monitoring.sample.periods import Periods, total
from monitoring.sample.series import starts
from streams.log.condition import OLD
from streams.models import DeadMessage, UtcNow

DAY = timedelta(days=1)
# A committed message that waits for longer is not being sequenced.
NOT_SEQUENCED = timedelta(seconds=30)
# In rows: the rest is on the pages of the groups and of the topics.
SHOWN = 10


@dataclass(frozen=True)
class Headline:
    """The four figures. What is unknown is None."""

    published: float | None  # messages a second
    published_hour: int | None  # messages, as far as sampled
    consumed: float | None
    behind: int | None
    oldest: timedelta | None
    dead_new: int  # in 24 hours, up to 10,000
    dead: int  # that wait for a decision

    @property
    def level(self) -> str:
        return "bad" if self.oldest is not None and self.oldest > OLD else ""

    @property
    def dead_level(self) -> str:
        return "bad" if self.dead else ""


class OverviewPage(FiguresPage):
    name = "changelist"  # where the index of the admin leads to
    route = ""
    title = _("Overview")
    template_name = "ems_monitoring/overview.html"
    tab = "changelist"

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        using = self.using
        letters = DeadMessage.objects.using(using).filter(died_at__gte=UtcNow(-DAY))
        alarms = self.alarms()
        site = Site.read(using, self.now, counted={"dead_new": letters}, alarms=alarms)
        groups = group_figures(site)
        periods = Periods.until(self.now, self.asked.length)
        is_hour = periods.starts == site.periods.starts
        topics = topic_figures(site, site.starts if is_hour else starts(using, periods))
        spark = pipeline(using, self.now)
        if not self.may_view(Run):
            spark = replace(spark, error="")
        times, counted = {}, {}
        steps = step_states(using)
        worst = groups[:SHOWN]
        if spark.until is not None:
            times = percentiles(using, self.now, [one.pk for one in worst])
            (counted,) = ranking(using, [TimeSpan(periods.first)], site.topics)
        inbox = [one for one in topics if one.inbox_age and one.inbox_age > NOT_SEQUENCED]
        return {
            "alarms": firing(alarms) if self.may_view(Alarm) else None,
            "headline": _headline(site, groups),
            "series": {
                "published": published_series(site, site.partitions),
                "consumed": total(one.consumed for one in site.readers.values()),
                "behind": total(one.behind for one in site.readers.values()),
                "dead": total(one.dead for one in site.readers.values()),
            },
            "groups": worst,
            "groups_in_all": len(groups),
            "groups_in_trouble": sum(bool(one.needs) for one in groups),
            "percentiles": times,
            "topics": topics[:SHOWN],
            "topics_in_all": len(topics),
            "ranking": counted,
            "not_sequenced": inbox[:SHOWN],
            "steps": steps,
            "overdue": [one for one in steps if one.is_overdue] if topics else [],
            "pipeline": spark,
            "sampled_at": _sampled_at(site),
        }


def _headline(site: Site, groups: list[GroupFigures]) -> Headline:
    consumed = [one.consumed for one in groups if one.consumed is not None]
    behind = [one.behind for one in groups if one.behind is not None]
    rates = (site.rates.published(topic) for topic in site.rates.ends)
    published = [rate for rate in rates if rate is not None]
    return Headline(
        published=sum(published) if published else None,
        published_hour=in_range(site.starts, site.partitions),
        consumed=sum(consumed) if consumed else None,
        behind=sum(behind) if behind else None,
        oldest=max((one.age for one in groups if one.age is not None), default=None),
        dead_new=site.counts["dead_new"],
        dead=sum(one.dead for one in groups),
    )


def _sampled_at(site: Site) -> Any:
    read = [one for series in site.log.values() for one in series.ends if one is not None]
    return max((at for at, _end in read), default=None)
