"""Plans the cases: one for each fault and each statement at which it can happen."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from streams.chaos.faults import (
    Case,
    ClockBack,
    ClockForward,
    DiesAfter,
    DiesBefore,
    Freezes,
    LosesReply,
    Reordered,
    SplitCase,
    Twice,
)
from streams.chaos.statements import Statement
from streams.consume.registry import Registration

ORDERS = (1, 2, 3)
SIZES = (1, 2, 3)

NO_REPLIES = "lost replies: no network is between a process and SQLite"
NOBODY_ELSE = (
    "frozen processes and steps of the clock in an open transaction: it holds the lock of SQLite,"
    " so no other consumer can go on"
)


@dataclass
class ProofPlan:
    """The cases of a proof: ``left_out`` of them are too many, and others are impossible.

    ``impossible`` says in sentences what this database cannot show.
    """

    cases: list[Case]
    left_out: int = 0
    impossible: list[str] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        seen: Sequence[Statement],
        registrations: Sequence[Registration],
        messages: int,
        faults: Collection[str],
        *,
        never_repeated: bool,
        max_cases: int,
        seed: int,
        by_signal: bool,
    ) -> ProofPlan:
        """Plan for the statements that a run without a fault has ``seen``.

        ``never_repeated``: the messages of one of the groups are tried once.
        If there are more cases than ``max_cases``, a sample of them is taken, which ``seed``
        decides.
        """
        made = [*_at_statements(seen, by_signal=by_signal)]
        made += _of_all(registrations, messages, seed, never_repeated=never_repeated)
        wanted = [case for case in made if case.kind in faults]
        cases = [case for case in wanted if _impossible(case, seen) is None]
        reasons = dict.fromkeys(filter(None, (_impossible(case, seen) for case in wanted)))
        some = cases
        if len(cases) > max_cases:
            chosen = random.Random(seed).sample(range(len(cases)), max_cases)  # noqa: S311
            some = [cases[index] for index in sorted(chosen)]
        return cls(some, len(cases) - len(some), list(reasons))


def _at_statements(seen: Sequence[Statement], *, by_signal: bool) -> Iterator[Case]:
    for one in seen:
        yield DiesBefore(one.number, one, by_signal=by_signal)
        # Between the statements of EMS itself, right after one is just before the next one.
        if one.in_handler or one.commits:
            yield DiesAfter(one.number, one, by_signal=by_signal)
        if one.commits:
            yield LosesReply(one.number, one)
    for before, one in pairwise(seen):
        first = before.offsets != one.offsets or not before.in_handler
        ended = before.in_handler or before.offsets != one.offsets
        if not (one.offsets and (one.in_handler or ended)):
            continue
        # In one transaction it is the same to others where in it the process freezes.
        if not one.in_transaction or not before.in_transaction or first or not one.in_handler:
            yield Freezes(one.number, one)
        if first or not one.in_handler:
            yield ClockForward(one.number, one)
            yield ClockBack(one.number, one)


def _of_all(
    registrations: Sequence[Registration], messages: int, seed: int, *, never_repeated: bool
) -> Iterator[Case]:
    """Yield the cases that concern all messages."""
    yield Twice()
    # Without a retry, a message whose process has died is a dead letter.
    free = not (never_repeated or any(one.ordered for one in registrations))
    if free and messages > 1:
        for number in ORDERS:
            yield Reordered(number, seed=seed)
    batch = max(one.batch or 0 for one in registrations)
    for size in SIZES:
        if size < min(batch, messages):
            yield SplitCase(size)


def _impossible(case: Case, seen: Sequence[Statement]) -> str | None:
    if not any(one.on_sqlite for one in seen):
        return None
    if isinstance(case, LosesReply):
        return NO_REPLIES
    if isinstance(case, Freezes) and case.struck and case.struck.in_transaction:
        return NOBODY_ELSE
    if isinstance(case, Twice) and not any(
        one.offsets and not one.in_handler and not one.in_transaction for one in seen
    ):
        return NOBODY_ELSE
    return None
