"""Subscriptions: a registered consumer, its group in the database, and the limits in force."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError
from django.utils.translation import gettext as _

from streams import runtime_settings
from streams.conf import MAX_BATCH
from streams.database.retrying import retrying
from streams.errors import GroupMismatch
from streams.models import ConsumerGroup, Cursor, Mode, Partition, Start, Topic
from streams.registry import Registration, find
from streams.topics import resolve
from streams.transactions import own_transaction


@dataclass(frozen=True)
class Overrides:
    """What the command line says; None leaves it to the decorator."""

    threads: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Limits:
    """What is in force for a group: admin override > command line > decorator > SystemConfig."""

    batch: int
    max_retries: int
    consume_timeout: timedelta


def limits(
    group: ConsumerGroup,
    registration: Registration | None,
    using: str,
    overrides: Overrides = Overrides(),
) -> Limits:
    decorated = registration.batch if registration else None
    return Limits(
        batch=min(
            MAX_BATCH,
            _first(
                group.batch,
                overrides.batch,
                decorated,
                runtime_settings.system("consumerBatchSize", using),
            ),
        ),
        max_retries=_first(
            group.max_retries,
            registration and registration.max_retries,
            runtime_settings.system("consumerRetryMaxTimes", using),
        ),
        consume_timeout=timedelta(
            seconds=_first(
                group.consume_timeout,
                registration and registration.consume_timeout,
                runtime_settings.system("consumeTimeoutSeconds", using),
            )
        ),
    )


def threads(registration: Registration, using: str, overrides: Overrides) -> int:
    if registration.mode == Mode.BROADCAST:
        return 1  # who reads all of a partition in order can only be one
    return int(
        _first(
            overrides.threads,
            registration.threads,
            runtime_settings.system("consumerThreads", using),
        )
    )


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def known_max_retries(group: ConsumerGroup, using: str) -> int | None:
    """How many retries the group has, if this process can tell: its consumer may be elsewhere.

    None leaves the judgement to who claims the message next.
    """
    registration = find(group.topic.name, group.name)
    if registration is None:
        return group.max_retries
    return limits(group, registration, using).max_retries


def subscribe(registration: Registration, using: str) -> ConsumerGroup:
    """The group of a registered consumer, created with its cursors if it is new.

    Raises GroupMismatch if the group exists with another mode.
    """
    topic = resolve(registration.topic, using)
    groups = ConsumerGroup.objects.using(using).select_related("topic")

    def work() -> ConsumerGroup:
        found = groups.filter(topic=topic.id, name=registration.group).first()
        if found:
            return found
        try:
            return _create(topic.id, registration, using)
        except IntegrityError:  # another process was faster
            return groups.get(topic=topic.id, name=registration.group)

    group = retrying(work, using)
    if (group.mode, group.ordered) != (registration.mode, registration.ordered):
        raise GroupMismatch(
            _("Group %s exists with another mode: mode and ordering are fixed at creation.") % group
        )
    return group


def _create(topic_id: int, registration: Registration, using: str) -> ConsumerGroup:
    with own_transaction(using):
        # Under the topic's lock no partition is added, and under those of the partitions no
        # offset is given out, and none purged, between the choice of a start and the cursor that
        # holds it.
        Topic.objects.using(using).select_for_update().get(pk=topic_id)
        partitions = list(
            Partition.objects.using(using)
            .select_for_update()
            .filter(topic=topic_id)
            .order_by("number")
        )
        group = ConsumerGroup.objects.using(using).create(
            topic_id=topic_id,
            name=registration.group,
            start=registration.start,
            mode=registration.mode,
            ordered=registration.ordered,
        )
        if registration.mode == Mode.BROADCAST:
            return group  # each of its clients has its position on its own disk
        for partition in partitions:
            latest = registration.start == Start.LATEST
            offset = partition.next_offset if latest else partition.first_offset
            Cursor.objects.using(using).create(
                group_id=group.pk,  # ids: with objects the project's routers would be asked
                partition_id=partition.pk,
                next_offset=offset,
                start_offset=offset,
            )
        return group
