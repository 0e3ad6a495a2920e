"""Moves a group to another place in the log, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from streams.errors import InvalidTarget, NaiveDatetime, OffsetOutOfRange, UnknownPartition
from streams.models import ConsumerGroup, Cursor, Mode
from streams.operate.acts.act import Act, Consent, Effects, Table, argument
from streams.operate.reset import CursorMove, Goal, Reset, towards
from streams.operate.target import Target

# In messages: who skips as many types in the number, since it is easily meant otherwise.
TYPED_FROM = 1000


@dataclass(frozen=True)
class ResetMove:
    """What the reset does in one partition, in messages."""

    partition: int
    position: int
    target: int
    again: int
    skipped: int
    fenced: int
    retries: int
    given_back: int
    restored: int


@dataclass(frozen=True)
class ResetMoves:
    """What a reset does in each partition. ``consumers`` are live."""

    consumers: int
    moves: list[ResetMove]


@dataclass(frozen=True)
class Moves(Effects):
    """Where a group goes in each of its partitions, and what happens to its messages."""

    group: ConsumerGroup
    moves: Sequence[CursorMove]
    consumers: int

    def texts(self) -> list[str]:
        return [str(move) for move in self.moves if not move.is_nothing]

    def table(self) -> Table:
        columns = (_("Partition"), _("From"), _("To"), _("What happens"))
        rows = [
            (str(move.partition), str(move.position), str(move.target), ", ".join(move.effects))
            for move in self.moves
        ]
        return Table(columns, rows)

    def data(self) -> ResetMoves:
        return ResetMoves(self.consumers, [_described(move) for move in self.moves])

    @property
    def shown(self) -> list[list[Any]]:
        # With the last reset of each cursor, which any reset changes.
        return [
            [
                move.partition.number,
                move.target,
                move.cursor.reset_at.isoformat() if move.cursor.reset_at else None,
            ]
            for move in self.moves
        ]

    @property
    def obstacle(self) -> str:
        if not self.consumers:
            return ""
        text = ngettext(
            "The group has %d live consumer: what it holds past the target is lost to it.",
            "The group has %d live consumers: what they hold past the target is lost to them.",
            self.consumers,
        )
        return text % self.consumers

    @property
    def typed(self) -> str:
        return str(self._skipped) if self._skipped >= TYPED_FROM else ""

    @property
    def asks(self) -> str:
        skipped = number_format(self._skipped, force_grouping=True)
        return _("%s messages are skipped. To go on, type how many") % skipped

    @property
    def _skipped(self) -> int:
        return sum(move.skipped for move in self.moves)


@dataclass(frozen=True)
class _Reset(Act[ConsumerGroup, Moves]):
    permission = "ems.reset_consumergroup"
    forcible = True
    destroys = True
    at_fault = {
        InvalidTarget: "to",
        NaiveDatetime: "to",
        OffsetOutOfRange: "to",
        UnknownPartition: "partition",
    }

    @classmethod
    def situation(cls, row: ConsumerGroup, using: str) -> Table:
        rows = Cursor.objects.using(using).filter(group=row.pk, replay=0)
        cursors = rows.select_related("partition__topic").order_by("partition__number")
        columns = (
            *(_("Partition"), _("Earliest"), _("Latest"), _("The group")),
            _("Before the last reset"),
        )
        places = (
            (
                str(one.partition),
                str(one.partition.first_offset),
                str(one.partition.next_offset),
                str(one.next_offset),
                None if one.previous_offset is None else str(one.previous_offset),
            )
            for one in cursors
        )
        return Table(columns, list(places))

    def preview(self, row: ConsumerGroup, using: str) -> Moves:
        """Raises InvalidTarget, OffsetOutOfRange, UnknownPartition and NothingToUndo."""
        goal, number = self._goal(row, using)
        return _moves(row, Reset(row, goal, using, number=number).preview(), using)

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> Moves:
        """Raises GroupActive, too, and PreviewStale after any other reset of the group."""
        goal, number = self._goal(row, using)
        if consent.shown is not None and goal is not None:
            # Not further than it was shown, though the log has grown.
            goal = _exactly({number: target for number, target, _reset_at in consent.shown})
        reset = Reset(
            row,
            goal,
            using,
            number=number,
            force=consent.force,
            consent=lambda moves: consent(_moves(row, moves, using)),
        )
        return _moves(row, reset.run(), using)

    def _goal(self, row: ConsumerGroup, using: str) -> tuple[Goal | None, int | None]:
        """Return where to go, and in which partition alone; no goal is back to the last place."""
        raise NotImplementedError


@dataclass(frozen=True)
class ResetGroup(_Reset):
    """Another place in the log for a group."""

    name = "reset"
    label = gettext_lazy("Reset")
    text = gettext_lazy(
        "The group goes on from another place in the log. Further back, messages are delivered"
        " again; further on, they are skipped. You will see what happens before it does."
    )

    to: str = argument(
        gettext_lazy(
            "where to: earliest, latest, an offset, orders/2@1200 (that partition alone),"
            " a time (2026-11-20T10:00Z), +N or -N messages"
        ),
        metavar="WHERE",
    )
    partition: int | None = argument(gettext_lazy("only this partition"), default=None, metavar="N")

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return row.mode != Mode.BROADCAST  # each of its clients has its own position

    def _goal(self, row: ConsumerGroup, using: str) -> tuple[Goal | None, int | None]:
        target = Target.parse(self.to)
        return towards(target), target.only(row, self.partition, using)


@dataclass(frozen=True)
class UndoReset(_Reset):
    """The place at which a group was before its last reset."""

    name = "undo"
    label = gettext_lazy("Undo the last reset")
    text = gettext_lazy("The group goes back to where it was before its last reset.")

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        rows = Cursor.objects.using(using).filter(group=row.pk, replay=0)
        return rows.filter(previous_offset__isnull=False).exists()

    def _goal(self, row: ConsumerGroup, using: str) -> tuple[Goal | None, int | None]:
        return None, None


def _moves(group: ConsumerGroup, moves: Sequence[CursorMove], using: str) -> Moves:
    return Moves(group, moves, group.clients.using(using).live().count())


def _exactly(targets: dict[int, int]) -> Goal:
    def goal(cursor: Cursor, position: int) -> int:
        return targets.get(cursor.partition.number, position)

    return goal


def _described(move: CursorMove) -> ResetMove:
    return ResetMove(
        partition=move.partition.number,
        position=move.position,
        target=move.target,
        again=move.again,
        skipped=move.skipped,
        fenced=len(move.fenced),
        retries=move.retries,
        given_back=move.given_back,
        restored=move.restored,
    )
