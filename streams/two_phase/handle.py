"""Defines Prepared: what prepare() returns, to commit it or to roll it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Self

from django.db import connections

from streams.database.transactions import in_own_block
from streams.errors import WrongDatabase
from streams.models import PreparedRow, PreparedState
from streams.produce.asynchronous import refuse_async
from streams.two_phase import decide
from streams.two_phase.record import caller

# The state as callers see it: how a committed message is sent is not a concern of theirs.
STATES = {
    PreparedState.PREPARED: "prepared",
    PreparedState.COMMITTED: "committed",
    PreparedState.SENT: "committed",
    PreparedState.UNSENT: "committed",
    PreparedState.ROLLED_BACK: "rolled back",
    PreparedState.MANUAL: "manual",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared message as it was when it was read.

    ``state`` is "prepared", "committed", "rolled back" or "manual": a person must decide, or its
    caller. ``created`` is False if it was prepared before. ``message_id`` is that of the message
    once it is sent.
    """

    biz: str
    biz_key: str
    topic: str
    state: str
    message_id: int | None
    created: bool
    checks: int = 0
    next_check_at: datetime | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    using: str = field(default="default", repr=False)
    row_id: int | None = field(default=None, repr=False, compare=False)

    def commit(self) -> Prepared:
        """Send the message as part of the transaction that is open on its alias, or at once.

        It may be repeated. Raises AlreadyDecided if it was rolled back, UnknownPrepared if it was
        purged, and WrongDatabase inside a transaction on another alias.
        """
        refuse_async("commit", "sync_to_async(held.commit)()")
        _check_alias(self.using, self.topic, "commit")
        row = decide.commit(
            self.biz, self.biz_key, by=caller(), using=self.using, known=self._known
        )
        return handle(row, self.using)

    def rollback(self) -> Prepared:
        """Drop the message, as part of the open transaction or at once.

        It may be repeated. Raises AlreadyDecided if it was committed, UnknownPrepared, and
        WrongDatabase.
        """
        refuse_async("rollback", "sync_to_async(held.rollback)()")
        _check_alias(self.using, self.topic, "rollback")
        row = decide.roll_back(
            self.biz, self.biz_key, by=caller(), using=self.using, known=self._known
        )
        return handle(row, self.using)

    @property
    def _known(self) -> decide.KnownRow | None:
        return None if self.row_id is None else decide.KnownRow(self.row_id, self.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an exception nobody here knows what became of the work: the check is to say.
        if kind is None:
            self.commit()


def _check_alias(using: str, topic: str, verb: str) -> None:
    """Raise WrongDatabase if a transaction is open on another alias, and none on ``using``."""
    if len(connections.settings) == 1 or in_own_block(connections[using]):
        return
    for other in connections.all(initialized_only=True):
        if other.alias != using and in_own_block(other):
            raise WrongDatabase(
                f"The open transaction is on {other.alias!r}, but the topic {topic} is on"
                f" {using!r}: a rollback would not take this decision back. Use"
                f" transaction.on_commit(held.{verb}, using={other.alias!r})."
            )


def handle(row: PreparedRow, using: str, *, created: bool = False) -> Prepared:
    return Prepared(
        biz=row.biz,
        biz_key=row.biz_key,
        topic=row.topic,
        state=STATES[PreparedState(row.state)],
        message_id=row.message_id,
        created=created,
        checks=row.checks,
        next_check_at=row.next_at if row.state == PreparedState.PREPARED else None,
        decided_by=row.decided_by or None,
        decided_at=row.decided_at,
        using=using,
        row_id=row.pk,
    )
