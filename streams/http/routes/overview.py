"""Sums up topics and groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.apps import apps
from django.db.models import Count
from ninja import Router

from streams.database.clock import database_now
from streams.http.access import ApiRequest, needs
from streams.http.answering import Answering
from streams.http.fields import Answer, Instant
from streams.http.routes.groups import measured
from streams.http.threads import on_pool
from streams.log.condition import Standing
from streams.models import ConsumerGroup, Topic
from streams.nouns.group import GroupInList
from streams.nouns.topic import TopicRate, with_counts
from streams.sharding import aliases

router = Router(tags=["Overview"])

# Topics and groups of one answer.
LISTED_AT_MOST = 50


class AlarmShown(Answer):
    database: str
    rule: str
    text: str
    severity: str
    since: Instant
    acknowledged_by: str


class Overview(Answer):
    """The busiest topics first, the groups that need somebody first, and the alarms.

    Nothing of a database that is ``away``.
    """

    at: Instant
    topics_in_all: int
    groups_in_all: int
    topics: list[TopicRate]
    groups: list[GroupInList]
    alarms: list[AlarmShown]
    away: list[str]


@router.get("/overview", response=Overview)
@needs("look")
@on_pool
def show_overview(request: ApiRequest) -> Overview:
    """Show at most 50 topics and 50 groups. Rates need the app `monitoring`."""
    databases = Answering()
    found = {using: databases.ask(using, partial(_seen, using)) for using in aliases()}
    seen = {using: one for using, one in found.items() if one is not None}
    topics = [topic for one in seen.values() for topic in one.topics]
    groups = [group for one in seen.values() for group in one.groups]
    topics.sort(key=_busiest)
    groups.sort(key=lambda one: one.order)
    return Overview(
        at=next(iter(seen.values())).at,
        topics_in_all=len(topics),
        groups_in_all=len(groups),
        topics=topics[:LISTED_AT_MOST],
        groups=[GroupInList.of(one) for one in groups[:LISTED_AT_MOST]],
        alarms=[alarm for one in seen.values() for alarm in one.alarms],
        away=databases.away,
    )


@dataclass(frozen=True)
class _Seen:
    """What is on one database."""

    at: datetime
    topics: list[TopicRate]
    groups: list[Standing]
    alarms: list[AlarmShown]


def _seen(using: str) -> _Seen:
    known = _known(using)
    groups = known.get("groups")
    if groups is None:
        groups = measured(ConsumerGroup.objects.using(using).select_related("topic"), using)
    return _Seen(
        at=database_now(using),
        topics=_topics(using, known.get("topics", {})),
        groups=groups,
        alarms=[AlarmShown(database=using, **one) for one in known.get("alarms", [])],
    )


def _known(using: str) -> dict[str, Any]:
    """Return what other apps know: ``ems_overview`` of their AppConfig.

    That is how groups stand, with their rates; rates of topics; and alarms.
    """
    found: dict[str, Any] = {}
    for config in apps.get_app_configs():
        if hasattr(config, "ems_overview"):
            found |= config.ems_overview(using)
    return found


def _topics(using: str, rates: dict[str, Any]) -> list[TopicRate]:
    readers = dict(
        ConsumerGroup.objects.using(using).order_by().values_list("topic").annotate(n=Count("pk"))
    )
    unknown = {"published_per_second": None, "published_last_hour": None}
    return [
        TopicRate.of(row, groups=readers.get(row.pk, 0), **rates.get(row.name, unknown))
        for row in with_counts(Topic.objects.using(using))
    ]


def _busiest(one: TopicRate) -> tuple[float, float, str]:
    return -(one.published_last_hour or 0), -(one.published_per_second or 0), one.topic
