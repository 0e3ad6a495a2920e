"""Lets a blocked partition of an ordered group go on: by an attempt now, or past the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.consume.blocked import Blockade, Blocked, blockades
from streams.consume.outcome import notices
from streams.consume.outcome.failure import SkippedByOperator
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction, short_lock_waits
from streams.errors import (
    AttemptRunning,
    NotBlocked,
    PreviewStale,
    StreamsError,
    TooManyParked,
    UnknownPartition,
)
from streams.log.held_keys import TOO_MANY
from streams.log.skips import move_cursor, skips
from streams.models import ConsumerGroup, Cursor, DeadMessage, Partition, Verdict
from streams.operate.acts.act import Act, Consent, Effects, Table, argument
from streams.wakeup import announce

THREAD = "skip"  # of the deliveries that cover what was skipped
# In seconds: a consumer holds the lock of a cursor only for some statements.
LOCK_SECONDS = 3


class Shown(NamedTuple):
    """What somebody was shown, and has agreed to: a partition by its number, offset, attempt."""

    partition: int
    offset: int
    attempt: int

    @classmethod
    def of(cls, blocked: Blocked) -> Shown:
        return cls(blocked.partition, blocked.offset, blocked.attempt)


@dataclass(frozen=True)
class UnblockedPartition:
    """A message that blocks a partition; ``outcome`` is null if nothing was done."""

    partition: int
    offset: int
    message_id: int | None
    attempt: int
    attempts: int | None
    since: datetime | None
    due_at: datetime | None
    is_running: bool
    behind: int
    outcome: str | None


@dataclass(frozen=True)
class UnblockedGroup:
    """What blocks a group: how many partitions, and those blocked the longest."""

    blocked: int
    partitions: list[UnblockedPartition]


@dataclass(frozen=True)
class Unblocking(Effects):
    """What blocks a group, and what has come of it, by the numbers of the partitions."""

    group: ConsumerGroup
    blockade: Blockade
    outcomes: Mapping[int, str] = field(default_factory=dict)

    def texts(self) -> list[str]:
        if self.outcomes:
            return list(self.outcomes.values())
        return [_text(one) for one in self.blockade.worst]

    def table(self) -> Table:
        columns = (
            *(_("Message"), _("Error"), _("Attempt"), _("It begins"), _("Blocked since")),
            _("Wait behind it"),
        )
        rows = [
            (
                one.place,
                one.error,
                f"{one.attempt}/{one.attempts}" if one.attempts else one.attempt,
                _("running now") if one.is_running else one.due_at,
                one.since,
                one.behind,
            )
            for one in self.blockade.worst
        ]
        return Table(columns, rows)

    def data(self) -> UnblockedGroup:
        return UnblockedGroup(
            blocked=self.blockade.partitions,
            partitions=[
                UnblockedPartition(
                    partition=one.partition,
                    offset=one.offset,
                    message_id=one.message,
                    attempt=one.attempt,
                    attempts=one.attempts,
                    since=one.since,
                    due_at=one.due_at,
                    is_running=one.is_running,
                    behind=one.behind,
                    outcome=self.outcomes.get(one.partition),
                )
                for one in self.blockade.worst
            ],
        )

    @property
    def shown(self) -> list[list[int]]:
        return [[*Shown.of(one)] for one in self.blockade.worst]


def _text(one: Blocked) -> str:
    due = one.due_at and f"{one.due_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    values = {
        "place": one.place,
        "error": one.error or _("its error is not known"),
        "attempt": one.attempt if one.attempts is None else f"{one.attempt}/{one.attempts}",
        "when": _("running now") if one.is_running else due or _("as soon as a consumer is free"),
        "behind": number_format(one.behind, force_grouping=True),
    }
    text = _("%(place)s: %(error)s; attempt %(attempt)s: %(when)s; behind it: %(behind)s")
    return text % values


@dataclass(frozen=True)
class _Unblock(Act[ConsumerGroup, Unblocking]):
    """An act that lets blocked partitions of an ordered group go on."""

    at_fault = {UnknownPartition: "partition"}

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        blocked = Cursor.objects.using(using).blocked().filter(group=row.pk)
        return row.ordered and blocked.exists()


@dataclass(frozen=True)
class RetryNow(_Unblock):
    """The next attempt at what blocks, without the rest of its wait."""

    name = "retry"
    permission = "ems.retry_consumergroup"
    label = gettext_lazy("Retry now")
    text = gettext_lazy(
        "The next attempt begins as soon as a consumer is free, without the rest of the wait. It"
        " counts as always: if it fails, the message waits again."
    )

    partition: int | None = argument(
        gettext_lazy("only this partition; by default all that are blocked"),
        default=None,
        metavar="N",
    )

    def preview(self, row: ConsumerGroup, using: str) -> Unblocking:
        """Raises NotBlocked, and AttemptRunning if an attempt runs in all of them."""
        found = what_blocks(row, using, self.partition)
        if all(one.is_running for one in found.worst):
            raise AttemptRunning
        return Unblocking(row, found)

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> Unblocking:
        """Raises NotBlocked, AttemptRunning and PreviewStale if that holds for all partitions."""
        found = blockade_of(row, using, self.partition)
        chosen = [Shown(*one) for one in consent.shown or map(Shown.of, found.worst)]
        outcomes: dict[int, str] = {}
        refused: list[StreamsError] = []
        for shown in chosen:
            try:
                retry_now(row, shown, using)
            except StreamsError as error:
                refused.append(error)
                outcomes[shown.partition] = str(error)
            else:
                text = _(
                    "Offset %(offset)d of partition %(partition)d: its next attempt begins now"
                )
                outcomes[shown.partition] = text % shown._asdict()
        if len(refused) == len(chosen):
            raise refused[0] if refused else not_blocked(row, self.partition)
        return Unblocking(row, found, outcomes)


@dataclass(frozen=True)
class SkipToDeadLetters(_Unblock):
    """The dead letter of the message that blocks a partition."""

    name = "skip"
    permission = "ems.skip_consumergroup"
    label = gettext_lazy("Skip to dead letters")
    text = gettext_lazy(
        "The group goes on with the message behind it. This one becomes a dead letter with its"
        " last error, which can be redriven later, but then it comes after those behind it."
    )
    destroys = True

    partition: int | None = argument(
        gettext_lazy("the blocked partition, if there are several"), default=None, metavar="N"
    )

    def preview(self, row: ConsumerGroup, using: str) -> Unblocking:
        """Raises NotBlocked, AttemptRunning, UnknownPartition if it must be said which one, and
        TooManyParked: what was never tried is no dead letter."""
        found = what_blocks(row, using, self.partition)
        if found.partitions > 1:
            places = ", ".join(one.place for one in found.worst)
            raise UnknownPartition(_("Several partitions are blocked: say which (%s).") % places)
        if found.worst[0].waits_for_room:
            raise TooManyParked
        if found.worst[0].is_running:
            raise AttemptRunning
        return Unblocking(row, found)

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> Unblocking:
        """Raises PreviewStale, and what the preview raises."""
        found = blockade_of(row, using, self.partition)
        (one,) = consent.shown or self.preview(row, using).shown
        shown = Shown(*one)
        if skip(row, shown, using, consent.who):
            text = _("Offset %(offset)d of partition %(partition)d: it is a dead letter now")
        else:
            text = _(
                "Offset %(offset)d of partition %(partition)d: passed; it was gone from the log, so"
                " there is no dead letter"
            )
        return Unblocking(row, found, {shown.partition: text % shown._asdict()})


# What lets a blocked group go on.
UNBLOCKING = {RetryNow.name, SkipToDeadLetters.name}


def blockade_of(group: ConsumerGroup, using: str, number: int | None) -> Blockade:
    """Return what blocks the partition ``number`` of the group, or all of its partitions."""
    found = retrying(lambda: blockades([group], using, partition=number), using)
    return found.get(group.pk, Blockade(0, ()))


def what_blocks(group: ConsumerGroup, using: str, number: int | None = None) -> Blockade:
    """Return the same; raises NotBlocked if nothing blocks it."""
    found = blockade_of(group, using, number)
    if not found.partitions:
        raise not_blocked(group, number)
    return found


def not_blocked(group: ConsumerGroup, number: int | None) -> NotBlocked:
    place = group if number is None else f"{group}/{number}"
    return NotBlocked(_("No message blocks %s.") % place)


def retry_now(group: ConsumerGroup, shown: Shown, using: str) -> None:
    """Let the next attempt at the message that was shown begin at once.

    Raises NotBlocked, AttemptRunning and PreviewStale.
    """
    tried: list[Cursor] = []

    def work() -> None:
        with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
            try:
                cursor = _lock(group, shown, using)
                if cursor.blocked_until is None:
                    text = _(
                        "Offset %(offset)d of partition %(partition)d does not wait any more: its"
                        " next attempt begins as soon as a consumer is free."
                    )
                    raise PreviewStale(text % shown._asdict())
            except (NotBlocked, AttemptRunning, PreviewStale):
                if tried:
                    return  # it goes on: the reply to an earlier try was lost
                raise
            tried.append(cursor)
            Cursor.objects.using(using).filter(pk=cursor.pk).update(blocked_until=None)

    retrying(work, using)
    announce(using, [group.topic.name])


def skip(group: ConsumerGroup, shown: Shown, using: str, who: str) -> bool:
    """Make a dead letter of the message that was shown, and let the group go on after it.

    ``who`` does it. Returns False if the message is gone from the log: then there is no letter, and
    it counts as missing. Raises NotBlocked, AttemptRunning, PreviewStale and TooManyParked.
    """
    tried: dict[datetime, tuple[Verdict, bool]] = {}

    def work() -> tuple[Verdict, bool]:
        with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
            cursor = _locked(group, shown, using)
            if tried:
                done = skips(group.pk, cursor.partition_id, shown.offset, shown.offset, using)
                times = done.filter(thread=THREAD, claimed_at__in=tried)
                for at in times.values_list("claimed_at", flat=True):
                    return tried[at]  # committed before: only the reply was lost
            _check(cursor, group, shown)
            if cursor.last_error == TOO_MANY:
                raise TooManyParked
            # Nobody else has the same time for this place: it is read under the lock.
            now = database_now(using)
            name, _colon, text = cursor.last_error.partition(": ")
            verdict = Verdict(shown.offset, cursor.attempt - 1, name, text)
            letters = DeadMessage.objects.using(using)
            is_dead = letters.bury(group.topic_id, group.pk, cursor.partition_id, verdict)
            move_cursor(
                cursor,
                shown.offset,
                shown.offset + 1,
                now,
                using,
                thread=THREAD,
                client_id=who[:190],
                dead=int(is_dead),
                missing=int(not is_dead),
                error=_("skipped to the dead letters"),
            )
            tried[now] = verdict, is_dead
            return verdict, is_dead

    verdict, is_dead = retrying(work, using)
    announce(using, [group.topic.name])
    place = group.topic.name, shown.partition, shown.offset
    attempt = notices.Attempt(*place, group.name, verdict.attempts)
    if is_dead:
        reason = SkippedByOperator(f"{verdict.error_class}: {verdict.error}")
        notices.died(attempt, reason, who, using)
    else:
        notices.missing(attempt, [shown.offset], using)
    return is_dead


def _lock(group: ConsumerGroup, shown: Shown, using: str) -> Cursor:
    """Lock the cursor, and check that it is still as it was shown."""
    cursor = _locked(group, shown, using)
    _check(cursor, group, shown)
    return cursor


def _locked(group: ConsumerGroup, shown: Shown, using: str) -> Cursor:
    rows = Cursor.objects.using(using).filter(group=group.pk, replay=0)
    place = rows.filter(partition__number=shown.partition).values_list("pk", flat=True)
    # By its key alone: a locking join would lock the partition, which the sequencer holds.
    cursor = Cursor.objects.using(using).select_for_update().filter(pk__in=list(place)).first()
    if cursor is None:
        raise not_blocked(group, shown.partition)
    return cursor


def _check(cursor: Cursor, group: ConsumerGroup, shown: Shown) -> None:
    # Its end is read under the lock: a skip beyond it would pass a message that is yet to come.
    partition = Partition.objects.using(cursor._state.db).get(pk=cursor.partition_id)
    # Set so, the project's database routers are not asked.
    Cursor._meta.get_field("partition").set_cached_value(cursor, partition)
    Cursor._meta.get_field("group").set_cached_value(cursor, group)
    values = {"group": group, "offset": shown.offset, "partition": shown.partition}
    if not cursor.is_blocked:
        text = _("Offset %(offset)d of partition %(partition)d does not block %(group)s any more.")
        raise NotBlocked(text % values)
    if cursor.next_message != shown.offset:
        text = _("Another message blocks partition %(partition)d of %(group)s now: offset %(now)d.")
        raise NotBlocked(text % {**values, "now": cursor.next_message})
    if cursor.open_delivery is not None:
        text = _(
            "A consumer of %(group)s is handling offset %(offset)d of partition %(partition)d just"
            " now: wait for the outcome."
        )
        raise AttemptRunning(text % values)
    if cursor.attempt != shown.attempt:
        text = _(
            "Offset %(offset)d of partition %(partition)d has failed again meanwhile: attempt"
            " %(attempt)d is next. Look again."
        )
        raise PreviewStale(text % {**values, "attempt": cursor.attempt})
