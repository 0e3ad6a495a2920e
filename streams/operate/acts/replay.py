"""Replays a part of the log to a group, beside what it reads, and ends replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from streams.errors import UnknownReplay
from streams.models import ConsumerGroup, Cursor, Mode, Partition
from streams.operate import replay
from streams.operate.acts.act import Act, Consent, Effects, argument


@dataclass(frozen=True)
class ReplayedPart:
    """What is replayed of a partition: the offsets ``first`` … ``end`` - 1."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True)
class ReplayBegun:
    """Which messages the replay with this number gives to the group again."""

    number: int
    messages: int
    parts: list[ReplayedPart]


@dataclass(frozen=True)
class Replayed(Effects):
    """The messages that a group sees again, and the number of the replay."""

    number: int
    spans: Sequence[replay.Span]

    def texts(self) -> list[str]:
        messages = sum(map(len, self.spans))
        text = ngettext(
            "replay %(number)d: %(count)s message: %(spans)s",
            "replay %(number)d: %(count)s messages: %(spans)s",
            messages,
        )
        count = number_format(messages, force_grouping=True)
        spans = ", ".join(map(str, self.spans))
        return [text % {"number": self.number, "count": count, "spans": spans}]

    def data(self) -> ReplayBegun:
        parts = [ReplayedPart(*place) for place in self._places]
        return ReplayBegun(self.number, sum(map(len, self.spans)), parts)

    @property
    def shown(self) -> list[Any]:
        # While a replay is there, no other one of its group has its number.
        return [self.number, self._places]

    @property
    def _places(self) -> list[list[int]]:
        return [[span.partition.number, span.first, span.end] for span in self.spans]


@dataclass(frozen=True)
class ReplayToGroup(Act[ConsumerGroup, Replayed]):
    """A part of the log, or one message, for a group that has had it."""

    name = "replay"
    permission = "ems.replay_consumergroup"
    label = gettext_lazy("Replay")
    text = gettext_lazy(
        "The group sees a part of the log again, beside what it reads. You will see which messages"
        " before it begins."
    )
    has_form = True

    from_: str | None = argument(
        gettext_lazy(
            "from: an offset, orders/2@1200 (that partition alone), or a time (2026-11-20T10:00Z)"
        ),
        default=None,
        metavar="WHERE",
    )
    to: str | None = argument(
        gettext_lazy("to: the same; it is not included itself"), default=None, metavar="WHERE"
    )
    partition: int | None = argument(gettext_lazy("only this partition"), default=None, metavar="N")
    message: str | None = argument(
        gettext_lazy("or one message: its id, or its place, such as orders/2@1200"),
        default=None,
        metavar="MESSAGE",
    )

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return row.mode != Mode.BROADCAST  # each of its clients has its own position

    def preview(self, row: ConsumerGroup, using: str) -> Replayed:
        """Raises GroupMismatch, InvalidTarget, OffsetOutOfRange and UnknownPartition."""
        replay.refuse_broadcast(row)
        return Replayed(replay.next_number(row, using), self._spans(row, using))

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> Replayed:
        """Raises PreviewStale, too, after any other replay to the group has begun."""
        if consent.shown is None:
            spans = self._spans(row, using)
        else:
            # Exactly these offsets, though a time may mean others now.
            rows = Partition.objects.using(using).filter(topic=row.topic_id)
            numbered = {one.number: one for one in rows.select_related("topic")}
            spans = [replay.Span(numbered[n], first, end) for n, first, end in consent.shown[1]]
        number = replay.start(
            row, spans, using, check=lambda number: consent(Replayed(number, spans))
        )
        return Replayed(number, spans)

    def _spans(self, row: ConsumerGroup, using: str) -> list[replay.Span]:
        return replay.named_spans(row, self.from_, self.to, self.message, using, self.partition)


@dataclass(frozen=True)
class ReplayCancelled(Effects):
    """How many messages of a replay are not given out any more."""

    number: int
    left_out: int

    def texts(self) -> list[str]:
        text = ngettext(
            "replay %(number)d: %(left)s message is not given out",
            "replay %(number)d: %(left)s messages are not given out",
            self.left_out,
        )
        left = number_format(self.left_out, force_grouping=True)
        return [text % {"number": self.number, "left": left}]

    @property
    def shown(self) -> int:
        return self.number  # it ends once


@dataclass(frozen=True)
class CancelReplay(Act[ConsumerGroup, ReplayCancelled]):
    """The end of a replay before it has given out all."""

    name = "cancel-replay"
    permission = "ems.replay_consumergroup"
    label = gettext_lazy("Cancel a replay")
    text = gettext_lazy("The replay gives out nothing more. What is in hand is finished.")
    at_fault = {UnknownReplay: "number"}

    number: int | None = argument(
        gettext_lazy("the number of the replay, if several run"), default=None, metavar="NUMBER"
    )

    @classmethod
    def is_offered(cls, row: ConsumerGroup, using: str) -> bool:
        return bool(_running(row, using))

    def preview(self, row: ConsumerGroup, using: str) -> ReplayCancelled:
        """Raises UnknownReplay if it does not run, or if it must be said which one."""
        running = _running(row, using)
        if self.number is None and len(running) > 1:
            raise UnknownReplay(
                _("Several replays run: say which (%s).") % ", ".join(map(str, running))
            )
        number = running[0] if self.number is None and running else self.number or 0
        if number not in running:
            raise replay.not_running(row, number)
        parts = [one for one in replay.replays([row], using) if one.number == number]
        return ReplayCancelled(number, sum(len(one.span) - one.given_out for one in parts))

    def run(self, row: ConsumerGroup, using: str, consent: Consent) -> ReplayCancelled:
        """Raises UnknownReplay as the preview, also if it has ended since."""
        shown = consent.shown
        number: int = self.preview(row, using).number if shown is None else shown
        return ReplayCancelled(number, replay.cancel(row, number, using))


def _running(group: ConsumerGroup, using: str) -> list[int]:
    rows = Cursor.objects.using(using).filter(group=group.pk).unended()
    return sorted(set(rows.values_list("replay", flat=True)))
