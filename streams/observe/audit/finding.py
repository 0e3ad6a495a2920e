"""Defines what an audit has found, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from django.utils.translation import gettext as _

from streams.errors import StreamsError

FindingKind = Literal[
    "no partition",
    "orphan",
    "hole",
    "repeat",
    "disorder",
    "outside the log",
    "uncovered",
    "unended",
    "lost failure",
    "stuck retry",
    "retry without body",
    "no time",
    "undecided",
    "unsent",
]
STAGES = ("inbox", "log", "groups", "open", "retries", "prepared")


class BadPosition(StreamsError, ValueError):
    """An audit cannot go on at this position: give it one that an audit has printed."""


@dataclass(frozen=True)
class Finding:
    """One broken promise, and the ``offsets`` of the log that it is about, if it has any."""

    kind: FindingKind
    where: str
    detail: str
    offsets: range | None = None

    def __str__(self) -> str:
        return f"{self.kind} in {self.where}: {self.detail}"

    @classmethod
    def stretch(cls, kind: FindingKind, where: str, offsets: range) -> Finding:
        detail = _("offsets %(first)d … %(last)d (%(count)d)")
        values = {"first": offsets.start, "last": offsets.stop - 1, "count": len(offsets)}
        return cls(kind, where, detail % values, offsets)

    def joined_with(self, other: Finding) -> Finding | None:
        """Return both as one, if ``other`` is of the same kind and begins where this one ends."""
        if (self.kind, self.where) != (other.kind, other.where):
            return None
        if not self.offsets or not other.offsets or self.offsets.stop != other.offsets.start:
            return None
        return self.stretch(self.kind, self.where, range(self.offsets.start, other.offsets.stop))


@dataclass(frozen=True)
class AuditPosition:
    """How far an audit is: all before it has been checked.

    ``row`` is the id of the partition, cursor or retry to go on with, ``offset`` the offset in it,
    and ``covered`` the offset up to which the deliveries reach that were read so far.
    """

    stage: str = STAGES[0]
    row: int = 0
    offset: int = 0
    covered: int = 0

    def __str__(self) -> str:
        return f"{self.stage}:{self.row}:{self.offset}:{self.covered}"

    @classmethod
    def parse(cls, text: str) -> AuditPosition:
        """Parse the text of a position; raises BadPosition."""
        stage, *numbers = text.split(":")
        try:
            row, offset, covered = map(int, numbers)
        except ValueError:
            raise BadPosition from None
        if stage not in STAGES:
            raise BadPosition
        return cls(stage, row, offset, covered)

    def at(self, offset: int, covered: int = 0) -> AuditPosition:
        """Return a position further on in the same row."""
        return replace(self, offset=offset, covered=covered)

    def next_row(self) -> AuditPosition:
        return AuditPosition(self.stage, self.row + 1)

    def next_stage(self) -> AuditPosition | None:
        following = STAGES[STAGES.index(self.stage) + 1 :]
        return AuditPosition(following[0]) if following else None


@dataclass(frozen=True)
class AuditWindow:
    """What one window has shown, and where the next one begins (None: there is none).

    ``offset`` is the one up to which a row of the stages log and groups was looked at: all of the
    row, if the next window is of another one.
    """

    findings: Sequence[Finding]
    then: AuditPosition | None
    about: str = ""
    offset: int | None = None


def joined(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings, with stretches that the windows have cut in pieces as one again."""
    held: Finding | None = None
    for finding in findings:
        if held and (whole := held.joined_with(finding)):
            held = whole
            continue
        if held:
            yield held
        held = finding
    if held:
        yield held
