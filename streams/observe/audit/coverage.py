"""Checks, for the audit, what became of the offsets of one group on one partition."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from django.utils.translation import gettext as _

from streams.conf import MAX_BATCH
from streams.log.skips import skips
from streams.models import Cursor, DeadMessage, Delivery, Kind, RetryMessage, State
from streams.observe.audit.finding import Finding


class Claim(NamedTuple):
    """What the audit needs of a delivery."""

    pk: int
    first_offset: int
    last_offset: int
    progress: int
    kind: str
    state: str
    failed: int
    dead: int
    missing: int


class Coverage:
    """The check of the deliveries of a group that begin at the offsets ``start`` … ``end`` - 1.

    They must cover all that the cursor has passed, and every failure must have gone on. For a
    replay only the first is checked here; its failures are checked with the group's own cursor.
    ``covered`` is the offset up to which earlier deliveries reach. Make it in a snapshot.
    """

    def __init__(self, cursor: Cursor, start: int, end: int, covered: int, using: str) -> None:
        # Below the floor there are no messages, or their deliveries may have been deleted.
        self._floor = max(cursor.start_offset, cursor.partition.first_offset, _kept_from(cursor))
        self._next = cursor.next_offset
        self._kind = cursor.kind
        self._where = f"{cursor.group.name} on {cursor.partition}"
        if cursor.replay:
            self._where += f", replay {cursor.replay}"
        self._using = using
        self._end = end
        self.covered = max(covered, self._floor)
        self._place = place = {"group": cursor.group_id, "partition": cursor.partition_id}
        self._start = max(start, self._floor)
        deliveries = Delivery.objects.using(using).filter(**place)
        # A delivery that begins before the end may reach beyond it by less than MAX_BATCH offsets.
        beyond = end + MAX_BATCH
        if start <= self._floor:
            # This is the first window, or a purge has moved the floor meanwhile: the delivery that
            # covers the floor may begin before it.
            start = max(start, self._floor - MAX_BATCH)
        # Skips may have any length, so one that begins before this window may reach into it.
        passed = skips(cursor.group_id, cursor.partition_id, start, beyond, using)
        self._skips = [Claim(*row) for row in passed.values_list(*Claim._fields)]
        before = [s for s in self._skips if s.kind == self._kind and s.first_offset < start]
        self.covered = max([self.covered, *(skip.last_offset + 1 for skip in before)])
        self._first = start
        span = {**place, "offset__gte": start, "offset__lt": beyond}
        # Also deliveries that begin before the window: one may have claimed its offsets again.
        rows = deliveries.filter(first_offset__gte=start - MAX_BATCH, first_offset__lt=beyond)
        columns = rows.order_by("first_offset").values_list(*Claim._fields)
        self._claims = [Claim(*row) for row in columns]
        self._retries = set(
            RetryMessage.objects.using(using).filter(**span).values_list("offset", flat=True)
        )
        self._ranges = [
            claim
            for claim in self._claims
            if claim.kind != Kind.RETRY and claim.state != State.SKIPPED
        ]
        # Ranges overlap only where a cursor was moved back, or where offsets were replayed.
        self._overlap = any(a.last_offset >= b.first_offset for a, b in pairwise(self._ranges))
        # What replays still have to give out; in an ordered group also what failed in them.
        replays = Cursor.objects.using(using).filter(**place, replay__gt=0)
        self._replays = list(replays.values_list("next_offset", "stop_offset"))
        self._last_retry: dict[int, int] = {}
        for claim in self._claims:
            if claim.kind == Kind.RETRY:
                newest = max(claim.pk, self._last_retry.get(claim.first_offset, 0))
                self._last_retry[claim.first_offset] = newest

    def findings(self) -> Iterator[Finding]:
        for claim in self._claims:
            if claim.first_offset < self._first:
                continue
            if claim.first_offset >= self._end:
                break
            if claim.kind == self._kind:
                if claim.first_offset > self.covered:
                    yield self._uncovered(claim.first_offset)
                self.covered = max(self.covered, claim.last_offset + 1)
            if self._kind == Kind.NEW and (lost := self._lost_by(claim)):
                yield Finding("lost failure", self._where, f"delivery {claim.pk}: {lost}")
        if self.covered < self._end:
            yield self._uncovered(self._end)
            self.covered = self._end
        if self._kind == Kind.NEW:
            yield from self._lost_after_redrive()

    def _uncovered(self, end: int) -> Finding:
        return Finding.stretch("uncovered", self._where, range(self.covered, end))

    def _lost_by(self, claim: Claim) -> str:
        """Return which messages of the claim are lost, as a text; empty if none is.

        A message is lost if it is not done and will not be delivered again. The claim has the
        number of its dead and missing offsets, but not which: dead letters may have been discarded.
        """
        unsettled = range(claim.progress, claim.last_offset + 1)
        if claim.state in (State.START, State.SKIPPED):
            unsettled = range(0)  # still open, or skipped
        if not unsettled and not claim.failed:
            return ""
        given_up = claim.dead + claim.missing
        nowhere = [offset for offset in unsettled if not self._goes_on(offset, claim)]
        if len(nowhere) > given_up:
            return _("nothing is known of offsets %s") % _few(nowhere)
        expected = claim.failed - (given_up - len(nowhere))
        settled = range(claim.first_offset, claim.progress)
        if expected > 0:
            found = sum(1 for offset in settled if self._goes_on(offset, claim))
            if found < expected:
                values = {"expected": expected, "found": found}
                return _("%(expected)d failed and are not dead, %(found)d go on") % values
        return ""

    def _lost_after_redrive(self) -> Iterator[Finding]:
        """Yield the redriven dead letters that have no retry and were not delivered since."""
        span = {**self._place, "offset__gte": self._start, "offset__lt": self._end}
        letters = DeadMessage.objects.using(self._using).filter(**span)
        redriven = [
            (letter, offset, at)
            for letter, offset, at in letters.values_list("pk", "offset", "redriven_at")
            if at and offset not in self._retries
        ]
        last = {self._last_retry.get(offset, 0) for _pk, offset, _at in redriven}
        deliveries = Delivery.objects.using(self._using).filter(pk__in=last)
        claimed = dict(deliveries.values_list("first_offset", "claimed_at"))
        for letter, offset, at in redriven:
            if offset not in claimed or claimed[offset] < at:
                detail = _("dead letter %d was redriven, and is not a retry") % letter
                yield Finding("lost failure", self._where, detail)

    def _goes_on(self, offset: int, claim: Claim) -> bool:
        """Tell whether the group sees the offset after this claim, or has, or it was purged."""
        return (
            offset < self._floor
            or offset >= self._next
            or offset in self._retries
            or self._last_retry.get(offset, 0) > claim.pk
            or self._claimed_again(offset, claim)
            or self._skipped_since(offset, claim)
            or (claim.kind == Kind.REPLAY and self._is_replayed(offset))
        )

    def _claimed_again(self, offset: int, claim: Claim) -> bool:
        """Tell whether a later delivery of a range covers the offset."""
        if not self._overlap:
            return False
        upto = bisect_right(self._ranges, offset, key=lambda other: other.first_offset)
        for other in reversed(self._ranges[:upto]):
            if other.first_offset <= offset - MAX_BATCH:
                return False
            if other.pk > claim.pk and other.last_offset >= offset:
                return True
        return False

    def _skipped_since(self, offset: int, claim: Claim) -> bool:
        """Tell whether a later skip covers the offset: of a reset, a purge, or an ended replay.

        A skip of a replay counts only for claims of replays.
        """
        return any(
            skip.pk > claim.pk and skip.first_offset <= offset <= skip.last_offset
            for skip in self._skips
            if skip.kind == Kind.NEW or claim.kind == Kind.REPLAY
        )

    def _is_replayed(self, offset: int) -> bool:
        return any(start <= offset < (stop or 0) for start, stop in self._replays)


def _kept_from(cursor: Cursor) -> int:
    """Return the offset from which deliveries are kept: log_offset of the group's own cursor."""
    if not cursor.replay:
        return cursor.log_offset
    own = Cursor.objects.using(cursor._state.db).filter(group=cursor.group_id, replay=0)
    return (
        own.filter(partition=cursor.partition_id).values_list("log_offset", flat=True).first() or 0
    )


def _few(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets[:10])) + (" …" if len(offsets) > 10 else "")
