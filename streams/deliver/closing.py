"""Closes a part of a delivery, or all of it: records its outcome, and says what it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from streams.consume.limits import Limits
from streams.consume.outcome.failure import BodyUnread, Failure, NotBegun
from streams.consume.outcome.settle import Settlement, settle
from streams.database.retrying import retrying
from streams.deliver.reading import NOTHING, LeftOut
from streams.log.held_keys import room
from streams.models import Delivery


@dataclass
class Outcome:
    """The outcomes of messages, counted."""

    done: int = 0
    failed: int = 0  # of these, `dead` have become dead letters
    dead: int = 0
    missing: int = 0
    passed: int = 0  # without a tag that the group wants
    released: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.done += other.done
        self.failed += other.failed
        self.dead += other.dead
        self.missing += other.missing
        self.passed += other.passed
        self.released += other.released
        self.errors += other.errors


@dataclass(frozen=True)
class Closed:
    """What became of the offsets of ``span``: ``gone`` are missing, ``passed`` were not wanted."""

    span: range
    settlement: Settlement
    gone: Sequence[int]
    passed: int

    @property
    def parked(self) -> int:
        return len(self.settlement.parked)

    @property
    def outcome(self) -> Outcome:
        judged = self.settlement.judged
        tried = [one for one in judged if not one.postponed]
        return Outcome(
            done=len(self.span) - len(judged) - len(self.gone) - self.passed - self.parked,
            failed=len(tried),
            dead=sum(one.verdict is not None for one in tried),
            missing=len(self.gone),
            passed=self.passed,
            errors=[one.failure.error for one in tried],
        )

    @property
    def outcomes(self) -> dict[int, str]:
        """Return what the log says of the offsets that are not done."""
        named = dict.fromkeys(self.settlement.parked, "parked")
        named |= {
            one.failure.offset: "postponed" if one.postponed else "retry"
            for one in self.settlement.judged
        }
        return named | {one.failure.offset: "dead" for one in self.settlement.dead}


def close(
    delivery: Delivery,
    progress: int,
    failures: Sequence[Failure],
    limits: Limits,
    left_out: LeftOut = NOTHING,
    *,
    running: timedelta = timedelta(0),
) -> Closed:
    """Record the outcome of all offsets below ``progress``; past the last one, the delivery ends.

    ``running`` is how long ago the first call began. In an ordered group the first message that
    has failed, or was not read, ends the delivery: those after it wait for it. In a group by key
    only one does that was not read, since its key is unknown, or that has failed while too many
    are parked; with lanes these few are parked, too, since those behind are done. Raises LeaseLost.
    """
    span = range(delivery.progress, progress)
    unread = [Failure(n, BodyUnread()) for n in left_out.unread.intersection(span)]
    early = [Failure(n, left_out.early[n]) for n in span if n in left_out.early]
    failures = sorted([*failures, *unread, *early], key=lambda failure: failure.offset)
    blocking = failures if delivery.group.ordered else []
    parks = delivery.parks.keys() & span if delivery.group.by_key else set()
    if failures and delivery.group.by_key and _may_park(delivery, len(parks)):
        blocking = [one for one in failures if isinstance(one.error, BodyUnread)]
    if blocking:
        span = range(delivery.progress, blocking[0].offset + 1)
        failures = [one for one in failures if one.offset in span]
    gone = sorted(left_out.missing.intersection(span))
    passed = left_out.passed.intersection(span)
    settlement = settle(
        delivery,
        span.stop,
        failures,
        max_retries=limits.max_retries,
        retry=limits.retry,
        missing=len(gone),
        passed=passed,
        parks=parks.intersection(span) - passed,
        blocks=bool(blocking),
        running=running,
    )
    return Closed(span, settlement, gone, len(passed))


def _may_park(delivery: Delivery, parks: int) -> bool:
    if delivery.in_lanes:
        return True
    return retrying(room, delivery.using, delivery.group, delivery.using) > parks


def not_begun(
    delivery: Delivery, begun: Collection[int], stop: int, left_out: LeftOut
) -> list[Failure]:
    """Return what comes again of a claim in lanes up to ``stop`` - 1, since no call of it began.

    Its key has failed, or was in a call when the process stopped.
    """
    out = left_out.passed | left_out.missing | left_out.unread | delivery.parks.keys()
    rest = set(range(delivery.progress, stop)).difference(begun, out)
    return [Failure(offset, NotBegun()) for offset in sorted(rest)]
