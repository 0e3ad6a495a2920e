"""The whole way of one message: who sent it, and what each group has done with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    RetryMessage,
    State,
)


@dataclass(frozen=True)
class GroupTrace:
    """One group's deliveries of the message, and what comes next."""

    group: ConsumerGroup
    deliveries: list[Delivery] = field(default_factory=list)
    retry: RetryMessage | None = None
    dead: list[DeadMessage] = field(default_factory=list)
    state: str = ""


def trace(message: Message) -> list[GroupTrace]:
    """What every group of the topic has done with the message, in order of their names."""
    using = message._state.db or ""
    groups = ConsumerGroup.objects.using(using).filter(topic=message.partition.topic_id)
    return [_trace(group, message, using) for group in groups.order_by("name")]


def _trace(group: ConsumerGroup, message: Message, using: str) -> GroupTrace:
    offset = message.offset
    if offset is None:
        return GroupTrace(group, state="not sequenced yet")
    place = {"group": group.pk, "partition": message.partition_id}
    claims = Delivery.objects.using(using).covering(group.pk, message.partition_id, offset)
    deliveries = list(claims.order_by("id"))
    retry = RetryMessage.objects.using(using).filter(**place, offset=offset).first()
    letters = DeadMessage.objects.using(using).filter(**place, offset=offset)
    dead = list(letters.defer("body", "traceback").order_by("id"))
    cursor = Cursor.objects.using(using).filter(**place, replay=0).first()
    return GroupTrace(
        group, deliveries, retry, dead, _state(offset, cursor, deliveries, retry, dead)
    )


def _state(
    offset: int,
    cursor: Cursor | None,
    deliveries: list[Delivery],
    retry: RetryMessage | None,
    dead: list[DeadMessage],
) -> str:
    """What the group is about to do with the message, or has done last."""
    if retry and retry.delivery_id is None:
        return f"attempt {retry.attempt} due at {retry.due_at:%Y-%m-%d %H:%M:%S} UTC"
    if deliveries and deliveries[-1].state == State.START:
        done = offset < deliveries[-1].progress
        return "done" if done else "being handled"
    if dead and dead[-1].redriven_at is None:
        return "dead"
    if deliveries:
        return "done"
    if cursor is None or offset < cursor.start_offset:
        return "before the start of the group"
    return "waiting to be claimed" if offset >= cursor.next_offset else "unknown: its log is gone"
