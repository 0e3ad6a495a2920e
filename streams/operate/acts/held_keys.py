"""Lets held keys go on: by an attempt now, or past the message that holds the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from streams.consume.key_holders import KeyHolder, key_holders
from streams.consume.outcome import notices
from streams.consume.outcome.dead_letter import give_up
from streams.consume.outcome.failure import SkippedByOperator
from streams.database.retrying import retrying
from streams.database.transactions import own_transaction, short_lock_waits
from streams.errors import AttemptRunning, NotBlocked, PreviewStale
from streams.log.held_keys import GroupPartition, lock
from streams.models import DeadMessage, HeldKey, RetryMessage, UtcNow, Verdict
from streams.operate.acts.act import Act, Consent, Effects, Table
from streams.wakeup import announce

# Seconds to wait for a lock of others.
LOCK_SECONDS = 5


@dataclass(frozen=True)
class HeldKeyState:
    """A held key: ``attempt`` of the message at ``offset`` is next, and ``behind`` wait for it."""

    key: str
    partition: int
    offset: int
    attempt: int | None
    due_at: datetime | None
    behind: int


@dataclass(frozen=True)
class LetGo(Effects):
    """What holds a key, and what was done about it."""

    holder: KeyHolder
    done: list[str] = field(default_factory=list)

    def texts(self) -> list[str]:
        if self.done:
            return self.done
        one = self.holder
        due = one.due_at and f"{one.due_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        text = _("%(place)s: %(error)s; attempt %(attempt)s: %(when)s; behind it: %(behind)s")
        values = {
            "place": one.place,
            "error": one.error or _("its error is not known"),
            "attempt": one.attempt,
            "when": due or _("as soon as a consumer is free"),
            "behind": number_format(one.behind, force_grouping=True),
        }
        return [text % values]

    def table(self) -> Table:
        columns = (_("Key"), _("Message"), _("Error"), _("Attempt"), _("Held since"))
        one = self.holder
        row = (one.held.key, one.place, one.error, one.attempt, one.held.held_at, one.behind)
        return Table((*columns, _("Wait behind it")), [row])

    def data(self) -> HeldKeyState:
        one = self.holder
        held = one.held
        return HeldKeyState(
            key=held.key,
            partition=held.partition.number,
            offset=held.head_offset,
            attempt=one.attempt,
            due_at=one.due_at,
            behind=one.behind,
        )

    @property
    def shown(self) -> list[Any]:
        one = self.holder
        return [one.held.head_offset, one.attempt, one.due_at and one.due_at.isoformat()]


@dataclass(frozen=True)
class _OfHeldKey(Act[HeldKey, LetGo]):
    """An act on the message that holds a key."""

    @classmethod
    def is_offered(cls, row: HeldKey, using: str) -> bool:
        try:
            found = holder_of(row, using)
        except NotBlocked:
            return False
        return not found.is_running and not found.held.dead

    def preview(self, row: HeldKey, using: str) -> LetGo:
        """Raises NotBlocked, and AttemptRunning while its message runs."""
        found = holder_of(row, using)
        if found.held.dead:
            raise NotBlocked(_("A dead letter holds the key: redrive or discard it."))
        if found.is_running:
            raise AttemptRunning
        return LetGo(found)


@dataclass(frozen=True)
class RetryKeyNow(_OfHeldKey):
    """The next attempt at the message that holds a key, without the rest of its wait."""

    name = "retry"
    permission = "ems.retry_consumergroup"
    label = gettext_lazy("Retry now")
    text = gettext_lazy(
        "The next attempt at the message that holds the key begins as soon as a consumer is free."
        " It counts as always: if it fails, the message waits again."
    )

    def run(self, row: HeldKey, using: str, consent: Consent) -> LetGo:
        """Raises NotBlocked, AttemptRunning and PreviewStale."""
        found: list[LetGo] = []

        def work() -> None:
            with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
                lock(GroupPartition(row.group_id, row.partition_id), [row.key_hash], using)
                now = self.preview(row, using)
                if not found:  # else only the reply to an earlier try was lost
                    consent(now)
                    found.append(now)
                head = now.holder.head
                rows = RetryMessage.objects.using(using).filter(pk=head.pk if head else 0)
                if not rows.filter(delivery=None).update(due_at=UtcNow()):
                    raise AttemptRunning

        retrying(work, using)
        announce(using, [row.group.topic.name])
        (one,) = found
        return LetGo(one.holder, [_("%s: its next attempt begins now") % one.holder.place])


@dataclass(frozen=True)
class SkipKeyToDeadLetters(_OfHeldKey):
    """The dead letter of the message that holds a key."""

    name = "skip"
    permission = "ems.skip_consumergroup"
    label = gettext_lazy("Skip to dead letters")
    text = gettext_lazy(
        "The key goes on with its next message. This one becomes a dead letter with its last error,"
        " which can be redriven later, but then it comes after those behind it."
    )
    destroys = True
    deletes = True

    def run(self, row: HeldKey, using: str, consent: Consent) -> LetGo:
        """Raises NotBlocked, AttemptRunning and PreviewStale."""
        found = self.preview(row, using)
        consent(found)
        head = found.holder.head
        if head is None:
            raise PreviewStale
        head.group = row.group
        reason = SkippedByOperator(head.last_error)
        letters = DeadMessage.objects.using(using).filter(
            group=row.group_id,
            partition=row.partition_id,
            offset=head.offset,
            error_class=Verdict.of(reason, head.offset, 0).error_class,
        )
        written: list[datetime] = []  # when the letter died that each try has written

        def work() -> bool:
            with short_lock_waits(using, LOCK_SECONDS), own_transaction(using):
                if not give_up(head, reason):
                    # With its letter an earlier try was committed, and only the reply was lost.
                    return letters.filter(died_at__in=written).exists()
                written.extend(letters.order_by("-died_at").values_list("died_at", flat=True)[:1])
                return True

        if not retrying(work, using):
            raise PreviewStale
        announce(using, [row.group.topic.name])
        place = row.group.topic.name, row.partition.number, head.offset
        attempt = notices.Attempt(*place, row.group.name, head.attempt - 1)
        notices.died(attempt, reason, consent.who, using)
        return LetGo(found.holder, [_("%s: it is a dead letter now") % found.holder.place])


def holder_of(row: HeldKey, using: str) -> KeyHolder:
    """Return what holds the key now; raises NotBlocked if it is not held any more."""
    keys = HeldKey.objects.using(using).select_related("group__topic", "partition__topic")
    now = keys.filter(group=row.group_id, partition=row.partition_id, key_hash=row.key_hash).first()
    if now is None:
        raise NotBlocked(_("The key %s is not held any more.") % row.key)
    return key_holders([now], using)[0]
