"""Runs the handlers of a test under every fault, and asks each time whether its invariant holds."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connections
from django.db.models import QuerySet

from streams.chaos.consumers import Consumers
from streams.chaos.faults import KINDS, Case
from streams.chaos.plan import ProofPlan
from streams.chaos.report import ONLY, Broken, InvariantBroken, Report
from streams.chaos.rows import World
from streams.chaos.statements import Statement, Statements, in_memory
from streams.conf import database
from streams.consume.outcome.failure import ProcessDied
from streams.consume.registry import Registration, autodiscover, registrations
from streams.models import DeadMessage, Mode
from streams.observe.audit.walk import audit

FAULTS = tuple(KINDS)


@dataclass
class Chaos:
    """The proof of handlers: see the fixture ``chaos``.

    ``test`` is how pytest names the test. ``databases`` are the aliases whose rows are put back
    before each case; that of EMS belongs to them always.
    """

    test: str = ""
    databases: Sequence[str] = ()

    def run(
        self,
        group: str,
        holds: Callable[[], object],
        *,
        topic: str | None = None,
        reset: Callable[[], object] | None = None,
        faults: Collection[str] = FAULTS,
        max_cases: int = 200,
        seed: int = 0,
        processes: bool = False,
        using: str | None = None,
    ) -> Report:
        """Run the handlers of ``group`` on what the test has sent, once for each fault.

        Before each case the rows of the test's databases and Django's mail outbox are as they are
        now, and ``reset()`` is called for what else the test keeps. After it the rest is delivered,
        as other processes would; then ``holds()`` is called. It returns False or raises if the
        invariant does not hold. EMS is audited, too, and no message may be a dead letter that is
        none without a fault.

        ``topic``: only the group of this topic. ``faults``: some of FAULTS. ``max_cases``: if
        there are more, a sample of so many is run, which ``seed`` decides. ``processes``: processes
        die of SIGKILL; then ``holds`` must look at what outlives a process. With the environment
        variable EMS_CHAOS, only the case of that name is run.

        Returns the report. Raises InvariantBroken, an AssertionError, with the report; and
        ValueError for what cannot be proved.
        """
        __tracebackhide__ = True
        alias = database(using)
        chosen = _chosen(group, topic, faults)
        aliases = tuple(dict.fromkeys([*self.databases, alias]))
        _refuse_what_cannot_die(aliases, processes=processes)
        with _quiet():
            proof = _Proof(chosen, holds, reset, aliases, alias)
            report = Report(group, 0, self.test)
            seen, broken = proof.without_a_fault()
            report.statements = len(seen)
            if broken:
                report.cases, report.broken = [broken.case], [broken]
                raise InvariantBroken(report) from broken.error
            plan = ProofPlan.make(
                *(seen, chosen, proof.messages, faults),
                never_repeated=proof.never_repeated,
                max_cases=max_cases,
                seed=seed,
                by_signal=processes,
            )
            report.left_out, report.impossible = plan.left_out, plan.impossible
            try:
                for case in _wanted(plan, group):
                    report.cases.append(case)
                    if found := proof.of(case):
                        report.broken.append(found)
            finally:
                proof.world.put_back()
        if report.broken:
            raise InvariantBroken(report) from report.broken[0].error
        if not any(case.happened for case in report.cases):
            raise ValueError(f"nothing is proved: no fault has happened.\n{report}")
        return report


class _Proof:
    def __init__(
        self,
        chosen: Sequence[Registration],
        holds: Callable[[], object],
        reset: Callable[[], object] | None,
        aliases: Sequence[str],
        using: str,
    ) -> None:
        self._consumers = Consumers(chosen, aliases, using)
        self.messages = self._consumers.waiting()
        if not self.messages:
            raise ValueError("send the messages before chaos.run(): there are none to handle")
        self.world = World(aliases, reset)
        self._never_repeated = self._consumers.never_repeated
        self._holds = holds
        self._using = using
        self._dead = 0

    @property
    def never_repeated(self) -> bool:
        return bool(self._never_repeated)

    def without_a_fault(self) -> tuple[Sequence[Statement], Broken | None]:
        """Return the statements of a run without a fault, and what was wrong then already."""
        self._run(Case(), Statements())  # the first one fills caches, and may need more statements
        statements = Statements()
        broken = self._run(Case(), statements)
        self._dead = self._letters().count()
        return statements.seen, broken or self._judged(Case())

    def of(self, case: Case) -> Broken | None:
        return self._run(case, Statements(case)) or self._judged(case)

    def _run(self, case: Case, statements: Statements) -> Broken | None:
        self.world.put_back()
        try:
            with statements.watched():
                case.run(self._consumers, statements)
        except Exception as error:  # noqa: BLE001 - what EMS itself raises is a finding, too
            return Broken(case, f"{type(error).__name__}: {error}", error)
        return None

    def _judged(self, case: Case) -> Broken | None:
        try:
            if self._holds() is False:
                return Broken(case, "the invariant returned False")
        except Exception as error:  # noqa: BLE001 - pytest's failures and whatever it stumbles on
            text = str(error) or "(without a text)"
            return Broken(case, f"{type(error).__name__}: {text}", error)
        letters = self._letters()
        if letters.count() > self._dead:
            letter = letters.order_by("-pk")[0]
            return Broken(
                case,
                f"{letters.count() - self._dead} more dead letters than without a fault; the last"
                f" one: offset {letter.offset}, {letter.error_class}: {letter.error}",
            )
        if findings := audit(self._using):
            return Broken(case, "ems_doctor --audit: " + "; ".join(map(str, findings)))
        return None

    def _letters(self) -> QuerySet[DeadMessage]:
        """Return the letters that count: where nothing is repeated, a death is meant to end so."""
        rows = DeadMessage.objects.using(self._using).filter(group__in=self._consumers.groups)
        died = f"{ProcessDied.__module__}.{ProcessDied.__qualname__}"
        return rows.exclude(group__in=self._never_repeated, error_class=died)


def _chosen(group: str, topic: str | None, faults: Collection[str]) -> list[Registration]:
    autodiscover()
    chosen = list(registrations((topic,) if topic else (), (group,)))
    if not chosen:
        raise ValueError(f"no consumer is registered for the group {group!r}")
    if any(one.mode == Mode.BROADCAST for one in chosen):
        raise ValueError(f"the group {group!r} is a broadcast group: chaos proves cluster groups")
    if unknown := set(faults) - set(FAULTS):
        raise ValueError(f"unknown faults {sorted(unknown)}: there are {', '.join(FAULTS)}")
    return chosen


def _refuse_what_cannot_die(aliases: Sequence[str], *, processes: bool) -> None:
    for alias in aliases:
        if connections[alias].in_atomic_block:
            raise ValueError(
                "the test is in a transaction, so nothing can be committed: use"
                " django_db(transaction=True) or a TransactionTestCase"
            )
        if processes and in_memory(connections[alias]):
            raise ValueError(
                f"the database {alias!r} is SQLite in memory, which no other process sees: leave"
                " processes=True out, or name a file in DATABASES' TEST"
            )


def _wanted(plan: ProofPlan, group: str) -> Sequence[Case]:
    """Return the cases to run; raises ValueError if there is none, as that would prove nothing."""
    if not plan.cases:
        reasons = "".join(f"; impossible here: {text}" for text in plan.impossible)
        raise ValueError(f"none of these faults can happen to the group {group!r}{reasons}")
    name = os.environ.get(ONLY)
    if not name:
        return plan.cases
    if found := [case for case in plan.cases if case.name == name]:
        return found
    names = ", ".join(case.name for case in plan.cases)
    raise ValueError(f"{ONLY}={name} is not a case of the group {group!r}: there are {names}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what EMS says of each fault, some thousands of lines, out of the report of the test."""
    logger = logging.getLogger("streams")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
