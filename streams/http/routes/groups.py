"""Looks at groups and changes them."""

from __future__ import annotations

from collections.abc import Iterable

from ninja import Router

from streams.conf import database
from streams.http.access import ApiRequest, needs
from streams.http.databases import page_of_all
from streams.http.fields import Limit, PageOfAll, Request
from streams.http.found import group_named
from streams.http.journal import note_changes, who
from streams.http.threads import on_pool
from streams.log.condition import Standing
from streams.log.standings import standings
from streams.models import Consumer, ConsumerGroup, Delivery
from streams.nouns.at_place import with_names
from streams.nouns.client import clients
from streams.nouns.delivery import DeliveryShown
from streams.nouns.group import GroupInList, GroupOverrides, GroupPlace, GroupState
from streams.operate.changes import change

router = Router(tags=["Groups"])

# Where counts end: 10,000 means at least so many.
COUNT_AT_MOST = 10_000
# Clients and deliveries of one answer.
LISTED_AT_MOST = 50


class GroupChanges(Request):
    """The overrides to change; null, or an empty text, removes one."""

    max_retries: int | None = None
    retry_policy: str | None = None
    consume_timeout: int | None = None
    batch: int | None = None
    rate: str | None = None


@router.get("/groups", response=PageOfAll[GroupInList])
@needs("look")
@on_pool
def list_groups(
    request: ApiRequest, topic: str | None = None, after: str | None = None, limit: Limit = 100
) -> PageOfAll[GroupInList]:
    """List groups with their lag, as they were made, those of one database after the other."""

    def read(using: str, behind: int | None, most: int) -> tuple[list[GroupInList], int | None]:
        rows = ConsumerGroup.objects.using(using).select_related("topic").order_by("pk")
        if topic is not None:
            rows = rows.filter(topic__name=topic)
        found = list(rows.filter(pk__gt=behind or 0)[: most + 1])
        items = [GroupInList.of(one) for one in measured(found[:most], using)]
        return items, found[most - 1].pk if len(found) > most else None

    return page_of_all(after, int, limit, read)


@router.get("/topics/{topic}/groups/{group}", response=GroupState)
@needs("read", "{topic}")
@on_pool
def show_group(request: ApiRequest, topic: str, group: str) -> GroupState:
    """Show a group: its lag, where it is in each partition, its clients, what they hold."""
    return state(group_named(topic, group, database()))


@router.patch("/topics/{topic}/groups/{group}", response=GroupState)
@needs("manage", "{topic}")
@on_pool
def change_group(request: ApiRequest, topic: str, group: str, changes: GroupChanges) -> GroupState:
    """Change the overrides that are given. Consumers use them within five seconds."""
    row = group_named(topic, group, database())
    given = changes.model_dump(exclude_unset=True)
    for name in ("retry_policy", "rate"):
        if name in given:
            given[name] = given[name] or ""
    note_changes(request.auth, row, change(row, given, database(), who(request.auth)))
    return state(row)


def measured(groups: Iterable[ConsumerGroup], using: str) -> list[Standing]:
    """Return how each group stands; its counts end at COUNT_AT_MOST."""
    return standings(groups, using, COUNT_AT_MOST)


def state(group: ConsumerGroup) -> GroupState:
    """Return what there is to say of one group."""
    using = database()
    (standing,) = measured([group], using)
    numbers = dict(group.topic.partitions.using(using).values_list("pk", "number"))
    places = [
        GroupPlace.of(place, partition=numbers[place.partition])
        for place in standing.lag.places
        if place.partition in numbers
    ]
    rows = Consumer.objects.using(using).filter(group=group.pk).select_related("group__topic")
    held = Delivery.objects.using(using).held().filter(group=group.pk).order_by("claimed_at")
    return GroupState.of(
        standing,
        overrides=GroupOverrides.of(group),
        partitions=sorted(places, key=lambda place: place.partition),
        clients=clients(rows.order_by("-lease_until")[:LISTED_AT_MOST], using),
        deliveries=[
            DeliveryShown.of(row)
            for row in with_names(held[:LISTED_AT_MOST], using)
            if row.partition_id in numbers
        ],
    )
