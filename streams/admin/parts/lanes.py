"""Draws the trace of a message: a lane for each group, and in it a bar for each attempt.

All lanes have one time axis, from the sending to the last that is known. The widths are in
thousandths of it, so that the page draws them without a script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from streams.admin.parts import figures
from streams.models import Message, State
from streams.observe.trace import GroupTrace, TracedAttempt

WIDTH = 1000
# Calls of milliseconds among retries of hours must still be seen.
NARROWEST = 6

INBOX, WAITING, CLAIMED, RUNNING = "inbox", "waiting", "claimed", "running"


@dataclass(frozen=True)
class Bar:
    """One stretch of time: its place on the axis, what it is, and how it ended."""

    x: int
    width: int
    kind: str
    level: str
    title: str

    @property
    def end(self) -> int:
        return self.x + self.width


@dataclass(frozen=True)
class Lane:
    """The bars of one group; without a group those of the sending."""

    name: str
    state: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Lanes:
    """All lanes, and between which instants their axis is."""

    start: datetime
    end: datetime
    lanes: Sequence[Lane]

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @classmethod
    def of(cls, message: Message, trace: Sequence[GroupTrace]) -> Lanes:
        start = message.created_at
        instants = [message.sequenced_at, *(at for group in trace for at in _instants(group))]
        end = max([start + timedelta(milliseconds=1), *(at for at in instants if at)])
        axis = _Axis(start, end)
        sent = Lane(_("sent"), _sender(message), [axis.inbox(message)])
        return cls(start, end, [sent, *(axis.lane(group, message) for group in trace)])


@dataclass(frozen=True)
class _Axis:
    start: datetime
    end: datetime

    def inbox(self, message: Message) -> Bar:
        until = message.sequenced_at or self.end
        text = _("in the inbox for %s") % figures.took(until - message.created_at)
        return self._bar(message.created_at, until, INBOX, figures.QUIET, text)

    def lane(self, group: GroupTrace, message: Message) -> Lane:
        return Lane(group.group.name, group.state, list(self._bars(group, message)))

    def _bars(self, group: GroupTrace, message: Message) -> Iterator[Bar]:
        since = message.sequenced_at
        for attempt in group.attempts:
            delivery = attempt.delivery
            if since and since < delivery.claimed_at:
                text = _("waited %s") % figures.took(delivery.claimed_at - since)
                yield self._bar(since, delivery.claimed_at, WAITING, figures.QUIET, text)
            begun = delivery.started_at or delivery.finished_at or self.end
            if delivery.claimed_at < begun:
                text = _("claimed, not started, for %s") % figures.took(begun - delivery.claimed_at)
                yield self._bar(delivery.claimed_at, begun, CLAIMED, figures.QUIET, text)
            until = delivery.finished_at or self.end
            if delivery.started_at:
                text = _call(attempt)
                yield self._bar(begun, until, RUNNING, attempt_level(attempt), text)
            since = until
        retry = group.retry
        if retry and retry.delivery_id is None and retry.due_at and since:
            text = _("attempt %d is due then") % retry.attempt
            yield self._bar(since, max(since, retry.due_at), WAITING, figures.WARNING, text)

    def _bar(self, start: datetime, end: datetime, kind: str, level: str, title: str) -> Bar:
        left, right = self._x(start), self._x(end)
        width = max(NARROWEST if kind == RUNNING else 1, right - left)
        return Bar(min(left, WIDTH - width), width, kind, level, title)

    def _x(self, at: datetime) -> int:
        share = (at - self.start) / (self.end - self.start)
        return round(min(1.0, max(0.0, share)) * WIDTH)


def attempt_level(attempt: TracedAttempt) -> str:
    """Return the level of an attempt's outcome."""
    if attempt.error:
        return figures.BAD
    if attempt.delivery.state in (State.RELEASED, State.SKIPPED, State.START):
        return figures.QUIET
    return figures.GOOD if attempt.is_certain else figures.WARNING


def _call(attempt: TracedAttempt) -> str:
    delivery = attempt.delivery
    told: list[Any] = [
        _("attempt %(number)d: %(outcome)s")
        % {"number": delivery.attempt, "outcome": attempt.outcome},
        figures.took(attempt.took),
        f"{delivery.client_id} {delivery.thread}",
        attempt.error[:200],
    ]
    return " · ".join(text for text in told if text)


def _instants(group: GroupTrace) -> Iterator[datetime | None]:
    for attempt in group.attempts:
        delivery = attempt.delivery
        ended = delivery.finished_at or delivery.deadline
        yield from (delivery.claimed_at, delivery.started_at, ended)
    if group.retry:
        yield group.retry.due_at


def _sender(message: Message) -> str:
    return message.producer.replace("@", " · ")
