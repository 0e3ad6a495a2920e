"""Shows a topic: what comes in, what its groups do with it, its partitions and its retention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext_lazy as _

from monitoring.charts.chart import DURATION, Chart, Line
from monitoring.figures.group import group_figures
from monitoring.figures.rollups import backlogs, latencies, note
from monitoring.figures.site import Site
from monitoring.figures.topic import topic_figures
from monitoring.live.inbox import PartitionNow
from monitoring.live.sizes import size_of
from monitoring.live.topic import hot_keys
from monitoring.models import HotKey
from monitoring.pages.base import FiguresPage
from monitoring.pages.group import BY_SPARK
from monitoring.pages.streams import StreamFigures, stream_figures
from monitoring.sample.periods import total
from streams.admin.verbs.purge_preview import purge_preview
from streams.models import Message, Reader, Topic
from streams.observe.producers import Producers, producers
from streams.retain.readers import readers
from streams.retain.rule import rule_of

# In lines of the chart: the groups that need somebody most.
LINES = 5
# In partitions: those with most messages.
SHOWN = 50


@dataclass(frozen=True)
class PartitionFigures:
    """What a row about a partition shows."""

    pk: int
    number: int
    first_offset: int
    next_offset: int
    kept: int
    share: float | None  # of the messages that came in in the time range
    published: float | None
    inbox: int
    inbox_age: timedelta | None


class TopicPage(FiguresPage):
    name = "topic"
    route = "topics/<int:topic>/"
    title = _("Topic")
    template_name = "ems_monitoring/topic.html"
    permissions = ("ems.view_topic",)
    tab = "topics"

    topic: Topic

    def figures(self, **arguments: Any) -> Mapping[str, Any]:
        using, now = self.using, self.now
        site = Site.read(
            using, now, self.asked.length, topic=arguments["topic"], alarms=self.alarms()
        )
        if not site.partitions:
            raise Http404
        self.topic = topic = self.topic_of(site)
        starts = site.starts
        (figures,) = topic_figures(site, starts)
        seen = self.may_view(HotKey)
        hour, keys = hot_keys(using, topic.pk, now) if seen else (None, None)
        return {
            "topic": figures,
            "access": topic.get_access_display(),
            "retention": str(rule_of(topic, using)),
            "size": size_of(using, topic.pk, site.partitions),
            "partitions": self.partitions(site, starts)[:SHOWN],
            "groups": group_figures(site),
            "streams": self.streams(topic),
            "producers": self.producers(topic),
            "hot_keys": keys,
            "hot_hour": hour,
            "happened": self.happened(site.periods.first, (lag.group for lag in site.lags), topic),
            "charts": {
                "rates": self.rates(site),
                "latency": self.latency(site),
                **self.backlogs(site),
            },
        }

    def producers(self, topic: Topic) -> Producers | None:
        """Return who has sent lately; None for a user who may not view messages."""
        return producers(self.using, self.now, topic.pk) if self.may_view(Message) else None

    def streams(self, topic: Topic) -> list[StreamFigures] | None:
        """Return the streams of Spark that read it; None for a user who may not view them."""
        return stream_figures(readers(self.using, topic)) if self.may_view(Reader) else None

    def topic_of(self, site: Site) -> Topic:
        if site.lags:
            return site.lags[0].group.topic
        return Topic.objects.using(self.using).get(pk=site.partitions[0].topic)

    def heading(self, figures: Mapping[str, Any]) -> Any:
        return self.topic.name

    def more(self, request: HttpRequest, figures: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this user may do with the topic; what the next purge would take, if the URL
        asks: that takes many statements.
        """
        asked = request.GET.get("purge") == "1"
        purge = purge_preview(self.topic) if asked else None
        return {"purge": purge, "verbs": self.verbs(self.topic)}

    def rates(self, site: Site) -> Chart:
        nothing: list[float | None] = [None] * len(site.periods.starts)
        into = total(one.published for one in site.log.values()) or nothing
        lines = [Line(str(_("into the topic")), into)]
        lines += [
            Line(group.name, site.readers[group.pk].consumed)
            for group in group_figures(site)[:LINES]
            if group.pk in site.readers
        ]
        title = _("Messages a second: in, and done by each group")
        return Chart("rates", title, "/s", site.periods.starts, lines)

    def latency(self, site: Site) -> Chart:
        """Return the p95 of the groups that need somebody most."""
        chosen = group_figures(site)[:LINES]
        times = site.periods.starts
        found = latencies(self.using, site.periods, [one.pk for one in chosen]) if chosen else {}
        return Chart(
            "latency",
            _("From the send until done, p95 of each group"),
            DURATION,
            times,
            [Line(one.name, found[one.pk].lines[1]) for one in chosen if one.pk in found],
            note=note(site.periods),
            empty=BY_SPARK,
        )

    def backlogs(self, site: Site) -> dict[str, Chart]:
        """Return how far behind the groups were that need somebody most."""
        chosen = group_figures(site)[:LINES]
        sampled = {one.pk: site.readers.get(one.pk) for one in chosen}
        found = backlogs(self.using, site.periods, sampled)
        about = next((one.note for one in found.values() if one.note), "")
        lines = [(one.name, found[one.pk]) for one in chosen]
        times = site.periods.starts
        behind = [Line(name, one.behind) for name, one in lines]
        age = [Line(name, one.age) for name, one in lines]
        title = _("Age of the oldest unfinished message")
        return {
            "behind": Chart("behind", _("Messages behind"), "", times, behind, note=about),
            "age": Chart("age", title, DURATION, times, age, note=about),
        }

    def partitions(self, site: Site, starts: Mapping[int, int]) -> list[PartitionFigures]:
        """Return the partitions; ``share`` shows whether one has more to do than the others."""
        grown = {o.pk: o.next_offset - starts[o.pk] for o in site.partitions if o.pk in starts}
        whole = sum(grown.values())
        return [self._partition(site, one, grown, whole) for one in site.partitions]

    def _partition(
        self, site: Site, one: PartitionNow, grown: Mapping[int, int], whole: int
    ) -> PartitionFigures:
        return PartitionFigures(
            pk=one.pk,
            number=one.number,
            first_offset=one.first_offset,
            next_offset=one.next_offset,
            kept=one.kept,
            share=grown[one.pk] / whole if whole and one.pk in grown else None,
            published=site.rates.into(one.pk, one.next_offset),
            inbox=one.inbox,
            inbox_age=one.inbox_age,
        )
