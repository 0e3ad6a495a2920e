"""Sums up topics and groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.apps import apps
from django.db.models import Count, F, Sum
from ninja import Router

from streams.database.clock import database_now
from streams.http.access import ApiRequest, needs
from streams.http.answering import Answering
from streams.http.fields import Answer, Instant
from streams.http.routes.groups import GroupInList, measured
from streams.http.threads import on_pool
from streams.log.condition import Standing
from streams.models import ConsumerGroup, Topic
from streams.sharding import aliases

router = Router(tags=["Overview"])

# Topics and groups of one answer.
LISTED_AT_MOST = 50


class TopicRate(Answer):
    """A topic with what comes in: messages a second now, and in the last hour.

    What nobody has sampled is null.
    """

    topic: str
    database: str
    partitions: int
    messages: int
    groups: int
    published_per_second: float | None
    published_last_hour: int | None


class GroupRate(GroupInList):
    """A group with its rates, in messages a second, and when its backlog will be gone."""

    published_per_second: float | None
    consumed_per_second: float | None
    clear_seconds: float | None


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
    groups: list[GroupRate]
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
        groups=[
            GroupRate(
                **GroupInList.of(one).model_dump(),
                published_per_second=one.known.published,
                consumed_per_second=one.known.consumed,
                clear_seconds=None if clears is None else clears.total_seconds(),
            )
            for one in groups[:LISTED_AT_MOST]
            for clears in [one.clearing.time]
        ],
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
    rows = Topic.objects.using(using).annotate(
        n=Count("partitions"),
        kept=Sum(F("partitions__next_offset") - F("partitions__first_offset")),
    )
    readers = dict(
        ConsumerGroup.objects.using(using).order_by().values_list("topic").annotate(n=Count("pk"))
    )
    unknown = {"published_per_second": None, "published_last_hour": None}
    return [
        TopicRate(
            topic=row.name,
            database=using,
            partitions=row.n,
            messages=row.kept or 0,
            groups=readers.get(row.pk, 0),
            **rates.get(row.name, unknown),
        )
        for row in rows
    ]


def _busiest(one: TopicRate) -> tuple[float, float, str]:
    return -(one.published_last_hour or 0), -(one.published_per_second or 0), one.topic
