"""Subscribes a registered consumer: finds its group in the database, or creates it."""

from __future__ import annotations

from django.db import IntegrityError
from django.utils.translation import gettext as _

from streams.consume.registry import Registration
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import GroupMismatch
from streams.log.topics import resolve
from streams.models import ConsumerGroup, Cursor, Mode, Partition, Start, Topic
from streams.names import MAX_NAME, valid_new_name


def subscribe(registration: Registration, using: str) -> ConsumerGroup:
    """Return the group of a registered consumer; create it with its cursors if it is new.

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
        except IntegrityError:  # another process has created it meanwhile
            return groups.get(topic=topic.id, name=registration.group)

    group = retrying(work, using)
    if (group.mode, group.ordered) != (registration.mode, registration.ordered):
        raise GroupMismatch(
            _("Group %s exists with another mode: mode and ordering are fixed at creation.") % group
        )
    return group


def _create(topic_id: int, registration: Registration, using: str) -> ConsumerGroup:
    valid_new_name(registration.group, "group", MAX_NAME)
    with own_transaction(using):
        # The topic's lock keeps partitions from being added. The partitions' locks keep offsets
        # from being given out or purged. So the start that is read below is still right when its
        # cursor is written.
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
                group_id=group.pk,  # an id: with an object Django would ask the project's routers
                partition_id=partition.pk,
                next_offset=offset,
                start_offset=offset,
            )
        return group
