"""Subscribes a registered consumer: finds its group in the database, or creates it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from streams.consume.registry import Order, Registration
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import GroupMismatch, LogDamaged, StartNeeded
from streams.log.holdings import Holdings, holdings
from streams.log.offsets import offset_at
from streams.log.rewinds import jump_if_rewound
from streams.log.sequencer import (
    DAMAGES,
    UNSETTLED_SECONDS,
    PassCancelled,
    Rewound,
    Unsettled,
    sequence,
    sequence_locked,
)
from streams.log.topics import resolve
from streams.models import ConsumerGroup, Cursor, Mode, Partition, Start, Topic
from streams.models.group import EACH_KEY

# "earliest", "latest" or an aware datetime.
Begin = str | datetime
NO_OVERRIDES: Mapping[str, int | None] = {}


def subscribe(
    registration: Registration,
    using: str,
    start: Begin | None = None,
    overrides: Mapping[str, int | None] = NO_OVERRIDES,
) -> ConsumerGroup:
    """Return the group of a registered consumer; create it with its cursors if it is new.

    A new group has ``overrides``, columns of its row. It begins at ``start``, or where its
    decorator says; a broadcast group always where its decorator says, since that holds for each
    of its clients, also for later ones. Raises GroupMismatch if the group exists with another mode,
    StartNeeded if it is new, its topic holds messages and nobody says where it begins, and
    LogDamaged.
    """
    topic = resolve(registration.topic, using)
    partitions = [id_ for id_, _number in topic.partitions]
    cluster = registration.mode == Mode.CLUSTER
    begin = (cluster and start) or registration.start

    def work() -> ConsumerGroup:
        if found := _find(topic.id, registration, using):
            return found
        if begin == Start.LATEST and cluster:
            # Most of a full inbox is sequenced before the locks are taken.
            while sequence(using, partitions).more:
                pass
        while True:
            try:
                return _create(topic.id, registration, begin, using, overrides)
            except Rewound:
                for partition_id in partitions:
                    jump_if_rewound(partition_id, using)
            except Unsettled:
                time.sleep(UNSETTLED_SECONDS)
            except PassCancelled:
                continue

    group = retrying(work, using)
    if change := mismatch(registration, group.mode, group.order):
        raise GroupMismatch(f"{change} {mismatch_hint()}")
    wanted = {
        "tags": sorted(registration.tags),
        "rate_in_code": rate_in_code(registration),
        "hold_dead": registration.on_dead == "hold",
    }
    known = {**{name: getattr(group, name) for name in wanted}, "tags": group.tags or []}
    if wanted != known:
        row = ConsumerGroup.objects.using(using).filter(pk=group.pk)
        retrying(lambda: row.update(**wanted), using)
        for name, value in wanted.items():
            setattr(group, name, value)
    return group


def rate_in_code(registration: Registration) -> str:
    """Return the rate of the decorator, as the row of the group has it."""
    each = EACH_KEY if registration.rate_key else ""
    return f"{registration.rate}{each}" if registration.rate else ""


def mismatch(registration: Registration, mode: str, ordered: Order) -> str:
    """Say in what the decorator differs from the group; an empty text if in nothing."""
    changes = [
        f"{name} is {new} in @consumer, and {old} in the database"
        for name, new, old in (
            ("mode", registration.mode, mode),
            ("ordered", registration.ordered, ordered),
        )
        if new != old
    ]
    if not changes:
        return ""
    return f"Group {registration.group} on {registration.topic}: {'; '.join(changes)}."


def mismatch_hint() -> str:
    return (
        "Both are fixed when a group is created: set it back, give the group another name, or"
        " delete the group (ems_groups delete)."
    )


def start_missing(registration: Registration, held: Holdings) -> str:
    """Say that the group is new and that its topic holds ``held``."""
    return f"Group {registration.group} on {registration.topic} is new, and the topic holds {held}."


def start_hint() -> str:
    return (
        "Say where it starts, by start= in @consumer or by --start of ems_consume: “latest” leaves"
        " them out, “earliest” handles them all, a time begins there."
    )


def needs_start(registration: Registration) -> bool:
    """Tell whether the group, if it is new, may begin only on an empty topic.

    A client of a broadcast group that has no position begins at the latest: it reads no history.
    """
    return registration.start is None and registration.mode == Mode.CLUSTER


def _find(topic_id: int, registration: Registration, using: str) -> ConsumerGroup | None:
    groups = ConsumerGroup.objects.using(using).select_related("topic")
    return groups.filter(topic=topic_id, name=registration.group).first()


def _create(
    topic_id: int,
    registration: Registration,
    begin: Begin | None,
    using: str,
    overrides: Mapping[str, int | None],
) -> ConsumerGroup:
    with own_transaction(using):
        # The topic's lock keeps partitions from being added, and the group from being created by
        # another process. The partitions' locks keep offsets from being given out or purged. So the
        # start that is read below is still right when its cursor is written.
        topic = Topic.objects.using(using).select_for_update().get(pk=topic_id)
        if found := _find(topic_id, registration, using):
            return found
        locked = Partition.objects.using(using).select_for_update().filter(topic=topic_id)
        ids = [partition.pk for partition in locked.order_by("number")]
        if begin is None and needs_start(registration):
            # A message that is committed after this look comes into the log after the group's
            # start: the group gets it, and it is not history.
            if (held := holdings(topic_id, using)).messages:
                raise StartNeeded(f"{start_missing(registration, held)} {start_hint()}")
            begin = Start.EARLIEST
        begin = begin or Start.LATEST
        group = ConsumerGroup.objects.using(using).create(
            topic_id=topic_id,
            name=registration.group,
            start=begin.astimezone(UTC).isoformat() if isinstance(begin, datetime) else str(begin),
            mode=registration.mode,
            ordered=bool(registration.ordered),
            by_key=registration.ordered == "key",
            **overrides,
        )
        # A later read of it would ask the project's routers, which may name another database.
        ConsumerGroup._meta.get_field("topic").set_cached_value(group, topic)
        if registration.mode == Mode.BROADCAST:
            return group  # each of its clients has its position on its own disk
        if begin == Start.LATEST:
            # What is committed by now gets its offset now, and is left out. What is not committed
            # yet gets its offset later, and is read.
            for partition_id in ids:
                _empty_inbox(partition_id, registration, using)
        partitions = Partition.objects.using(using).filter(pk__in=ids)
        for partition in partitions.order_by("number"):
            offset = start_offset(partition, begin)
            Cursor.objects.using(using).create(
                group_id=group.pk,  # an id: with an object Django would ask the project's routers
                partition_id=partition.pk,
                next_offset=offset,
                start_offset=offset,
            )
        return group


def _empty_inbox(partition_id: int, registration: Registration, using: str) -> None:
    try:
        while sequence_locked(partition_id, using).more:
            pass
    except DAMAGES as error:
        raise LogDamaged(
            f"Group {registration.group} on {registration.topic} is new and starts at the latest"
            " message, which cannot"
            f" be told, because a partition cannot be sequenced: {error}. ems_doctor says how"
            " to repair it."
        ) from error


def start_offset(partition: Partition, begin: Begin) -> int:
    """Return where a new group that begins at ``begin`` starts in ``partition``."""
    if isinstance(begin, datetime):
        return offset_at(partition, begin)
    return partition.first_offset if begin == Start.EARLIEST else partition.next_offset
