"""Traces one message: what each group of its topic has done with it, and will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from streams.conf import database
from streams.database.snapshot import snapshot
from streams.log.skips import skips
from streams.models import (
    ConsumerGroup,
    Cursor,
    DeadMessage,
    Delivery,
    Message,
    Mode,
    RetryMessage,
    State,
)


@dataclass(frozen=True)
class TracedAttempt:
    """What became of one message in one delivery, which may cover others too."""

    delivery: Delivery
    outcome: str
    error: str  # of this message; empty if it did not fail
    waited: timedelta | None  # from the end of the attempt before it, or since it has an offset
    took: timedelta | None  # the handler calls, of all messages of the delivery

    @property
    def is_certain(self) -> bool:
        """Tell whether the delivery knows the outcome of each of its messages."""
        one = self.delivery
        return bool(self.error) or one.failed + one.missing + one.passed == len(one.failures())


@dataclass(frozen=True)
class GroupTrace:
    """One group's deliveries of the message, and what comes next."""

    group: ConsumerGroup
    deliveries: list[Delivery] = field(default_factory=list)
    retry: RetryMessage | None = None
    dead: list[DeadMessage] = field(default_factory=list)
    state: str = ""
    attempts: list[TracedAttempt] = field(default_factory=list)  # one for each delivery


def trace(message: Message) -> list[GroupTrace]:
    """Return what each group of the topic has done with the message, ordered by name."""
    using = message._state.db or database()
    with snapshot(using):  # without it, a row that moves between tables could seem lost
        groups = ConsumerGroup.objects.using(using).filter(topic=message.partition.topic_id)
        return [_trace(group, message, using) for group in groups.order_by("name")]


def _trace(group: ConsumerGroup, message: Message, using: str) -> GroupTrace:
    offset = message.offset
    if offset is None:
        return GroupTrace(group, state=_("not sequenced yet"))
    if group.mode == Mode.BROADCAST:
        return GroupTrace(group, state=_("read by each client for itself"))
    place = {"group": group.pk, "partition": message.partition_id}
    claims = Delivery.objects.using(using).covering(group.pk, message.partition_id, offset)
    passed = skips(group.pk, message.partition_id, offset, offset, using)
    deliveries = sorted({*claims, *passed}, key=lambda delivery: delivery.pk)
    retry = RetryMessage.objects.using(using).filter(**place, offset=offset).first()
    letters = DeadMessage.objects.using(using).filter(**place, offset=offset)
    dead = list(letters.defer("body", "traceback").order_by("id"))
    cursors = list(Cursor.objects.using(using).filter(**place).order_by("replay"))
    return GroupTrace(
        group,
        deliveries,
        retry,
        dead,
        _state(offset, cursors, deliveries, retry, dead),
        _attempts(message, deliveries, dead),
    )


def _attempts(
    message: Message, deliveries: Sequence[Delivery], dead: Sequence[DeadMessage]
) -> list[TracedAttempt]:
    offset, since = message.offset or 0, message.sequenced_at
    found = []
    for delivery in deliveries:
        begun, ended = delivery.started_at or delivery.claimed_at, delivery.finished_at
        died = any(delivery is _maker(letter, deliveries) for letter in dead)
        outcome, error = _ended(offset, delivery, died=died)
        waited = max(begun - since, timedelta(0)) if since else None
        took = ended - begun if delivery.started_at and ended else None
        found.append(TracedAttempt(delivery, outcome, error, waited, took))
        since = ended or since
    return found


def _ended(offset: int, delivery: Delivery, *, died: bool) -> tuple[str, str]:
    """Return how the delivery ended for the message at ``offset``, and its error."""
    if delivery.state == State.SKIPPED:
        return _("skipped"), ""
    if offset in (failures := delivery.failures()):
        return (_("failed, dead") if died else _("failed")), failures[offset]
    if not delivery.is_settled(offset):
        if delivery.state == State.START:
            return _("being handled"), ""
        if delivery.state == State.RELEASED:
            return _("released"), ""
        return _("lost: its consumer died, or took too long"), delivery.error
    if offset in delivery.parks:
        return _("parked"), ""
    counts = (
        (delivery.failed - len(failures), _("failed")),
        (delivery.missing, _("missing")),
        (delivery.passed, _("passed over")),
    )
    possible = [what for count, what in counts if count > 0]
    if delivery.first_offset == delivery.last_offset and possible:
        return possible[0], ""
    if delivery.first_offset == delivery.last_offset and delivery.state == State.RETRY:
        return _("postponed"), ""
    # The delivery has the number of these, not their offsets.
    return ", ".join([_("done"), *(_("or %s") % what for what in possible)]), ""


def _maker(letter: DeadMessage, deliveries: Sequence[Delivery]) -> Delivery | None:
    """Return the delivery that has made the dead letter: the last one that was claimed before."""
    before = [one for one in deliveries if one.dead and one.claimed_at <= letter.died_at]
    return before[-1] if before else None


def _state(
    offset: int,
    cursors: list[Cursor],
    deliveries: list[Delivery],
    retry: RetryMessage | None,
    dead: list[DeadMessage],
) -> str:
    """Return what the group will do next with the message, or has done last."""
    if retry and retry.delivery_id is None:
        if retry.due_at is None:
            return _("parked until the messages of its key before it are done")
        return _due(retry.attempt, retry.due_at)
    last = deliveries[-1] if deliveries else None
    if last and last.state == State.START and not last.is_settled(offset):
        return _("being handled") if last.token else _("given back: waits for the next claim")
    cursor = next((cursor for cursor in cursors if not cursor.replay), None)
    if cursor and offset >= cursor.next_offset:
        if cursor.blocked_until and offset == cursor.next_offset:  # of an ordered group
            return _due(cursor.attempt, cursor.blocked_until)
        # After a reset also a message that was done before.
        return _("waiting to be claimed again") if last else _("waiting to be claimed")
    for replay in cursors:
        if replay.stop_offset and replay.next_offset <= offset < replay.stop_offset:
            return _("waiting to be claimed by replay %d") % replay.replay
    if any(letter.redriven_at is None for letter in dead):
        return _("dead")
    if last:
        # A letter that was redriven before the last claim is of an earlier death.
        since = [one for one in dead if one.redriven_at and one.redriven_at >= last.claimed_at]
        return _outcome(offset, last, was_redriven=bool(since))
    if cursor is None or offset < cursor.start_offset:
        return _("before the start of the group")
    if offset < cursor.log_offset:
        return _("finished: its log was purged")
    return _("unknown: its log is gone")


def _due(attempt: int, at: datetime) -> str:
    values = {"attempt": attempt, "at": f"{at:%Y-%m-%d %H:%M:%S}"}
    return _("attempt %(attempt)d due at %(at)s UTC") % values


def _outcome(offset: int, last: Delivery, *, was_redriven: bool) -> str:
    """Return how the last delivery ended, for an offset that is in no other table now."""
    if last.state == State.SKIPPED:
        return _("skipped")
    if last.is_settled(offset) and last.first_offset < last.last_offset:
        # The delivery has the number of its messages that were given up, not their offsets.
        if last.failed == len(failures := last.failures()) and not last.missing:
            return _("discarded") if offset in failures and not was_redriven else _("done")
        given_up = last.dead or last.missing
        return _("done, or given up") if given_up else _("done")
    if last.missing:
        return _("missing: its body was gone")
    if offset < last.progress and not last.failed:
        return _("done")
    if last.dead and not was_redriven:
        return _("discarded")
    return _("lost: see ems_doctor --audit")
