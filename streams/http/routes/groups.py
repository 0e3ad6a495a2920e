"""Looks at groups and changes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ninja import Router

from streams.conf import database
from streams.database.clock import database_now
from streams.http.access import ApiRequest, needs
from streams.http.databases import page_of_all
from streams.http.fields import Answer, Instant, Limit, PageOfAll, Request
from streams.http.found import group_named
from streams.http.journal import note_changes, who
from streams.http.threads import on_pool
from streams.log.condition import Standing
from streams.log.standings import standings
from streams.models import Consumer, ConsumerGroup, Delivery
from streams.operate.changes import change

router = Router(tags=["Groups"])

# Where counts end: 10,000 means at least so many.
COUNT_AT_MOST = 10_000
# Clients and deliveries of one answer.
LISTED_AT_MOST = 50


class GroupInList(Answer):
    """A group with its lag, in messages; what is unknown is null.

    ``behind`` have an offset and are not claimed, ``open`` are claimed and not settled, ``retries``
    wait to be tried again, ``dead`` are dead letters that wait. Counts end at 10,000.
    ``state`` says what the group does, ``trouble`` why it needs somebody, the worst first.
    """

    topic: str
    group: str
    database: str
    mode: str
    ordered: bool
    state: str
    trouble: list[str]
    paused: bool
    behind: int | None
    open: int
    retries: int
    dead: int
    consumers: int
    age_seconds: float | None
    blocked_partitions: int
    reset_at: Instant | None

    @classmethod
    def of(cls, standing: Standing) -> GroupInList:
        return cls(**_values(standing))


class GroupPlace(Answer):
    """How far the group is in a partition: ``next`` is the offset that it claims next."""

    partition: int
    next: int
    end: int
    retry: int | None
    attempt: int
    blocked_until: Instant | None


class GroupClient(Answer):
    client: str
    live: bool
    started_at: Instant
    lease_until: Instant


class OpenDelivery(Answer):
    """A range of offsets that a client holds; those below ``progress`` are settled."""

    id: int
    partition: int
    first_offset: int
    last_offset: int
    progress: int
    kind: str
    attempt: int
    client: str
    thread: str
    claimed_at: Instant
    started_at: Instant | None
    deadline: Instant


class Overrides(Answer):
    """What an operator has set instead of what the code says; null: nothing."""

    max_retries: int | None
    retry_policy: str
    consume_timeout: int | None
    batch: int | None


class GroupState(GroupInList):
    overrides: Overrides
    partitions: list[GroupPlace]
    clients: list[GroupClient]
    deliveries: list[OpenDelivery]


class GroupChanges(Request):
    """The overrides to change; null, or an empty policy, removes one."""

    max_retries: int | None = None
    retry_policy: str | None = None
    consume_timeout: int | None = None
    batch: int | None = None


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
    if "retry_policy" in given:
        given["retry_policy"] = given["retry_policy"] or ""
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
    return GroupState(
        **_values(standing),
        overrides=Overrides(**{name: getattr(group, name) for name in Overrides.model_fields}),
        partitions=[
            GroupPlace(
                partition=numbers[place.partition],
                next=place.next_offset,
                end=place.end,
                retry=place.retry,
                attempt=place.attempt,
                blocked_until=place.blocked_until,
            )
            for place in sorted(standing.lag.places, key=lambda one: numbers.get(one.partition, -1))
            if place.partition in numbers
        ],
        clients=_clients(group, using),
        deliveries=_deliveries(group, numbers, using),
    )


def _values(standing: Standing) -> dict[str, Any]:
    lag = standing.lag
    return {
        "topic": lag.group.topic.name,
        "group": lag.group.name,
        "database": lag.group._state.db,
        "mode": lag.group.mode,
        "ordered": lag.group.ordered,
        "state": standing.condition.value,
        "trouble": standing.trouble,
        "paused": lag.group.paused,
        "behind": lag.behind,
        "open": lag.open,
        "retries": lag.waiting,
        "dead": lag.dead,
        "consumers": lag.consumers,
        "age_seconds": None if lag.age is None else lag.age.total_seconds(),
        "blocked_partitions": lag.blocked,
        "reset_at": lag.reset_at,
    }


def _clients(group: ConsumerGroup, using: str) -> list[GroupClient]:
    rows = Consumer.objects.using(using).filter(group=group.pk)
    now = database_now(using)
    return [
        GroupClient(
            client=row.client_id,
            live=row.lease_until >= now,
            started_at=row.started_at,
            lease_until=row.lease_until,
        )
        for row in rows.order_by("-lease_until")[:LISTED_AT_MOST]
    ]


def _deliveries(group: ConsumerGroup, numbers: dict[int, int], using: str) -> list[OpenDelivery]:
    held = Delivery.objects.using(using).held().filter(group=group.pk).order_by("claimed_at")
    return [
        OpenDelivery(
            id=row.pk,
            partition=numbers[row.partition_id],
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            progress=row.progress,
            kind=row.kind,
            attempt=row.attempt,
            client=row.client_id,
            thread=row.thread,
            claimed_at=row.claimed_at,
            started_at=row.started_at,
            deadline=row.deadline,
        )
        for row in held[:LISTED_AT_MOST]
        if row.partition_id in numbers
    ]
