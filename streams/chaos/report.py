"""Says in plain English which faults broke the invariant of a test."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

from streams.chaos.faults import KINDS, Case

# The environment variable that names the only case to run.
ONLY = "EMS_CHAOS"
SHOWN = 5


@dataclass(frozen=True)
class Broken:
    """A case in which the invariant broke, and why."""

    case: Case
    why: str
    error: BaseException | None = None


@dataclass
class Report:
    """What came of all cases: those that ran, and those of them that broke something.

    ``str()`` is the report for people. ``left_out``: the cases beyond ``max_cases``. ``impossible``
    says what the database cannot show.
    """

    group: str
    statements: int
    test: str = ""
    cases: list[Case] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    left_out: int = 0
    impossible: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self._of_broken(), *self._not_tried()])

    def _headline(self) -> str:
        held = f"A run of the group {self.group} has {_counted(self.statements, 'statement')}."
        cases = _counted(len(self.cases), "case")
        if not self.broken:
            return f"{held} The invariant held in {cases}."
        return f"{held} The invariant broke in {len(self.broken)} of {cases}."

    def _of_broken(self) -> list[str]:
        lines: list[str] = []
        for one in self.broken[:SHOWN]:
            lines += ["", *self._about(one)]
        if more := self.broken[SHOWN:]:
            names = " ".join(one.case.name for one in more)
            lines += ["", *textwrap.wrap(f"And in: {names}", 100, break_on_hyphens=False)]
        return lines

    def _about(self, broken: Broken) -> list[str]:
        case = broken.case
        struck = [f"  {case.struck}"] if case.struck else []
        if case.struck and case.struck.where:
            struck.append(f"  {case.struck.where}")
        why = textwrap.indent(broken.why.strip(), "    ").splitlines()
        lines = [*textwrap.wrap(case.says(self.statements), 96), *struck]
        lines += ["Then this was wrong:", *why]
        if case.kind in KINDS:
            lines.append(f"Again: {ONLY}={case.name} pytest {_quoted(self.test)}".rstrip())
        return [case.name, *textwrap.indent("\n".join(lines), "  ").split("\n")]

    def _not_tried(self) -> list[str]:
        missed = [case.name for case in self.cases if not case.happened and case.kind in KINDS]
        lines = [""] if self.left_out or self.impossible or missed else []
        if missed:
            text = f"Did not happen, the statement was not reached: {' '.join(missed)}"
            lines += textwrap.wrap(text, 96, subsequent_indent="  ", break_on_hyphens=False)
        if self.left_out:
            lines.append(f"Left out: {_counted(self.left_out, 'case')} beyond max_cases.")
        for text in self.impossible:
            lines += textwrap.wrap(f"Impossible here: {text}.", 96, subsequent_indent="  ")
        return lines


class InvariantBroken(AssertionError):
    """The invariant of a test broke under a fault; ``report`` says under which."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _quoted(test: str) -> str:
    return f"'{test}'" if test else ""
