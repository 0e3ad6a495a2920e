"""Replays a part of the log to a group, beside what the group reads.

A replay is an additional cursor with a number (1, 2, …) and an end, in each of its partitions. The
group's consumers claim from it as from the group's own cursor, which does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.db.models import F, Max, QuerySet, Sum
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.database.retrying import retrying
from streams.database.transactions import own_transaction
from streams.errors import (
    About,
    GroupMismatch,
    InvalidTarget,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownPartition,
    UnknownReplay,
)
from streams.log.places import LogPlace, message_name, message_named
from streams.log.skips import THREAD, move_cursor
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Mode,
    Partition,
    Topic,
    UtcNow,
)
from streams.models.delivery import UNSETTLED
from streams.operate.revoke import fence, held_by
from streams.operate.target import Target
from streams.wakeup import announce

STATES = {
    "running": gettext_lazy("running"),
    "finishing": gettext_lazy("finishing"),  # all messages are given out, and not all are settled
    "done": gettext_lazy("done"),
    "cancelled": gettext_lazy("cancelled"),
}


@dataclass(frozen=True)
class Span:
    """The offsets ``first`` … ``end`` - 1 of a partition."""

    partition: Partition
    first: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.first)

    def __str__(self) -> str:
        last = f"-{self.end - 1}" if self.end - 1 > self.first else ""
        return f"{self.partition}@{self.first}{last}"


@dataclass(frozen=True)
class Replay:
    """How far a replay is in one partition."""

    cursor: Cursor
    open: int  # claimed and not settled yet

    def __str__(self) -> str:
        values = {"number": self.number, "span": self.span, "state": self.state_text}
        return _("%(number)d: %(span)s, %(done)d of %(all)d given out, %(state)s") % {
            **values,
            "done": self.given_out,
            "all": len(self.span),
        }

    @property
    def number(self) -> int:
        return self.cursor.replay

    @property
    def span(self) -> Span:
        end = self.cursor.stop_offset or 0
        return Span(self.cursor.partition, self.cursor.start_offset, end)

    @property
    def given_out(self) -> int:
        """Return how many messages were claimed; those that failed are retries of the group."""
        reached = self.cursor.previous_offset  # where it was cancelled
        return (self.cursor.next_offset if reached is None else reached) - self.cursor.start_offset

    @property
    def is_running(self) -> bool:
        """Tell whether there is something left to give out."""
        return self.cursor.previous_offset is None and self.given_out < len(self.span)

    @property
    def state(self) -> str:
        """Return one of STATES."""
        if self.cursor.previous_offset is not None:
            return "cancelled"
        if self.is_running:
            return "running"
        return "finishing" if self.open else "done"

    @property
    def state_text(self) -> str:
        return str(STATES[self.state])


def named_spans(
    group: ConsumerGroup,
    start: str | None,
    end: str | None,
    message: str | None,
    using: str,
    number: int | None = None,
) -> list[Span]:
    """Return what people name: from ``start`` to before ``end``, or one ``message``.

    Raises what ``spans`` and ``span_of`` raise, and says which of the texts it is about.
    """
    if message and not (start or end):
        with About("message"):
            return span_of(group, message_name(message), using)
    if message or not (start and end):
        with About("message" if message else "to" if start else "from"):
            raise InvalidTarget(_("Give from and to, or one message."))
    with About("from"):
        first = _absolute(start)
    with About("to"):
        last = _absolute(end)
    with About("from", InvalidTarget), About("partition", UnknownPartition):
        return spans(group, first, last, using, number=number)


def _absolute(text: str) -> Target:
    target = Target.parse(text)
    if not target.is_absolute:
        raise InvalidTarget(
            _("A part of the log is from an offset or a time to another, not %r.") % text
        )
    return target


def spans(
    group: ConsumerGroup, start: Target, end: Target, using: str, *, number: int | None = None
) -> list[Span]:
    """Return what a replay from ``start`` to before ``end`` covers, as the log is now.

    There is a span for every partition of the topic, or for the one with this ``number``, that
    has messages in it. Raises UnknownPartition, InvalidTarget if a place is in another log, and
    OffsetOutOfRange if there are none or some have been purged.
    """
    for target in (start, end):
        number = target.only(group, number, using)
    rows = Partition.objects.using(using).filter(topic=group.topic_id).select_related("topic")
    if number is not None:
        rows = rows.filter(number=number)
    partitions = retrying(list, using, rows.order_by("number"))
    if not partitions:
        raise UnknownPartition(_("%s has no such partition.") % group)
    found = [Span(one, start.offset(one), end.offset(one)) for one in partitions]
    found = [span for span in found if span]
    if not found:
        raise OffsetOutOfRange(_("There is no message between the two targets."))
    for span in found:
        _check(span)
    return found


def span_of(group: ConsumerGroup, name: int | LogPlace, using: str) -> list[Span]:
    """Return the span of one message, which is named by its id or its place.

    Raises OffsetOutOfRange if it is not in the log of the group's topic.
    """
    message = retrying(message_named, using, name, using)
    if message is None or message.partition.topic_id != group.topic_id:
        raise OffsetOutOfRange(
            _("There is no message %(name)s on %(topic)s.")
            % {"name": name, "topic": group.topic.name}
        )
    if message.offset is None:
        raise OffsetOutOfRange(
            _("Message %s has not been sequenced yet: the group will see it.") % name
        )
    span = Span(message.partition, message.offset, message.offset + 1)
    _check(span)
    return [span]


def refuse_broadcast(group: ConsumerGroup) -> None:
    """Raise GroupMismatch for a broadcast group."""
    if group.mode == Mode.BROADCAST:
        raise GroupMismatch(_("%s is a broadcast group: nothing can be replayed to it.") % group)


def next_number(group: ConsumerGroup, using: str) -> int:
    """Return the number that the next replay to the group gets."""
    cursors = Cursor.objects.using(using).filter(group=group.pk)
    return (cursors.aggregate(last=Max("replay"))["last"] or 0) + 1


def start(
    group: ConsumerGroup,
    wanted: Sequence[Span],
    using: str,
    *,
    check: Callable[[int], None] = lambda number: None,
) -> int:
    """Begin a replay of the spans ``wanted``, one in each partition; return its number.

    Replays of the group that have ended are deleted. ``check`` may refuse the number, which nobody
    else can get meanwhile. Raises OffsetOutOfRange if a part has been purged, GroupMismatch for a
    broadcast group, and UnknownGroup if it was deleted.
    """
    refuse_broadcast(group)
    tried: list[int] = []

    def work() -> int:
        with own_transaction(using):
            # Under this lock, two replays that begin at once get different numbers.
            # A deletion of the group takes it, too.
            list(Topic.objects.using(using).select_for_update().filter(pk=group.topic_id))
            if not ConsumerGroup.objects.using(using).filter(pk=group.pk).exists():
                raise UnknownGroup(_("There is no group %s any more.") % group.name)
            keys = {span.partition.pk for span in wanted}
            rows = Partition.objects.using(using).filter(pk__in=keys)
            list(rows.select_for_update().order_by("number"))
            now = rows.select_related("topic").in_bulk()
            cursors = Cursor.objects.using(using).filter(group=group.pk)
            if tried and _is_about(cursors.filter(replay=tried[-1]), wanted):
                return tried[-1]  # committed: only the reply was lost
            number = next_number(group, using)
            check(number)
            _forget_ended(group, using)
            for span in wanted:
                _check(Span(now[span.partition.pk], span.first, span.end))
                Cursor.objects.using(using).create(
                    group_id=group.pk,  # ids: with objects Django would ask the project's routers
                    partition_id=span.partition.pk,
                    replay=number,
                    start_offset=span.first,
                    next_offset=span.first,
                    stop_offset=span.end,
                    has_held_keys=group.by_key,
                )
            tried.append(number)
            return number

    number = retrying(work, using)
    announce(using)
    return number


def cancel(group: ConsumerGroup, number: int, using: str) -> int:
    """End a replay; return how many of its messages were not given out.

    Open deliveries are finished, except in ordered groups, where the client loses its lease. Raises
    UnknownReplay if the replay has ended, or never existed.
    """

    tried: list[int] = []

    def work() -> int:
        with own_transaction(using):
            rows = Cursor.objects.using(using).filter(group=group.pk, replay=number)
            keys = list(rows.unended().values_list("pk", flat=True))
            locked = Cursor.objects.using(using).filter(pk__in=keys).select_for_update()
            cursors = list(locked.annotate(now=UtcNow()).order_by("pk"))
            if not cursors:
                # A replay that was cancelled keeps where; one that came to its end does not.
                left = rows.aggregate(n=Sum(F("stop_offset") - F("previous_offset")))["n"]
                if tried and left is not None:
                    return int(left)  # committed: only the reply was lost
                raise not_running(group, number)
            tried.append(sum(_cancel(cursor, using) for cursor in cursors))
            return tried[-1]

    return retrying(work, using)


def not_running(group: ConsumerGroup, number: int) -> UnknownReplay:
    values = {"group": group, "number": number}
    return UnknownReplay(_("%(group)s has no replay %(number)d that is running.") % values)


def replays(groups: Iterable[ConsumerGroup], using: str) -> list[Replay]:
    """Return the replays of ``groups``, the newest first, also those that have ended."""
    ids = [group.pk for group in groups]
    rows = Cursor.objects.using(using).filter(group__in=ids, replay__gt=0)
    rows = rows.select_related("group__topic", "partition__topic")
    cursors = retrying(list, using, rows)
    cursors.sort(key=lambda one: (one.group_id, -one.replay, one.partition.number))
    return [Replay(cursor, _open(cursor, using)) for cursor in cursors]


def _cancel(cursor: Cursor, using: str) -> int:
    at = cursor.now  # type: ignore[attr-defined]
    held = held_by(cursor, using, lock=True)
    if held:
        fence([held], at, using)
    position = held.progress if held else cursor.next_offset
    end = cursor.stop_offset or position
    move_cursor(cursor, position, end, at, using, thread=THREAD)
    Cursor.objects.using(using).filter(pk=cursor.pk).update(previous_offset=position)
    return end - position


def _is_about(cursors: QuerySet[Cursor], wanted: Sequence[Span]) -> bool:
    found = cursors.values_list("partition", "start_offset", "stop_offset")
    return set(found) == {(span.partition.pk, span.first, span.end) for span in wanted}


def _forget_ended(group: ConsumerGroup, using: str) -> None:
    rows = Cursor.objects.using(using)
    ended = rows.filter(group=group.pk).ended()
    rows.filter(pk__in=list(ended.values_list("pk", flat=True))).delete()


def _open(cursor: Cursor, using: str) -> int:
    rows = (
        Delivery.objects.using(using)
        .open()
        .filter(
            group=cursor.group_id,
            partition=cursor.partition_id,
            kind=Kind.REPLAY,
            first_offset__gte=cursor.start_offset,
            first_offset__lt=cursor.stop_offset,
        )
    )
    total = rows.aggregate(n=Sum(UNSETTLED))["n"]
    return int(total or 0)


def _check(span: Span) -> None:
    """Check that all of the span is in the log; raises OffsetOutOfRange."""
    partition = span.partition
    if span.first < partition.first_offset:
        text = _("%(partition)s begins at offset %(first)d: %(span)s is not there any more.")
    elif span.end > partition.next_offset:
        text = _("%(partition)s ends before offset %(next)d: %(span)s is not all there yet.")
    else:
        return
    values = {"first": partition.first_offset, "next": partition.next_offset, "span": span}
    raise OffsetOutOfRange(text % {"partition": partition, **values})
