"""Defines the faults: what goes wrong in a case, and at which statement."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import OperationalError, connections

from streams.chaos.consumers import Consumers
from streams.chaos.forks import in_fork
from streams.chaos.statements import Died, NoFault, Statement, Statements, cut

HOUR = timedelta(hours=1)
SERVER_LOST = 2013


class EndedByItself(AssertionError):
    """A forked process came to another end than the fault; ``status`` is as Popen has it."""

    def __init__(self, status: int) -> None:
        how = f"signal {-status}" if status < 0 else f"status {status}; its traceback is in stderr"
        super().__init__(f"the process that was to be killed ended by itself, with {how}")


@dataclass
class Case(NoFault):
    """One run of the handlers with one fault; ``number`` says at which statement, from 1.

    ``struck`` is that statement, at first as a run without a fault had it. ``happened`` tells
    whether the fault did.
    """

    number: int = 0
    struck: Statement | None = None
    happened: bool = False

    kind = "no-fault"

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.number}" if self.number else self.kind

    def run(self, consumers: Consumers, statements: Statements) -> None:
        """Consume with the fault, and let other processes consume the rest."""
        self._consumers, self._statements = consumers, statements
        try:
            self._begin()
        except Died:
            pass
        finally:
            statements.revive()
        statements.fault = NoFault()
        consumers.finish(statements)

    def _begin(self) -> None:
        self._consumers.consume(self._statements)

    def says(self, last: int) -> str:
        """Return what went wrong, as a sentence; ``last`` is the number of statements."""
        return "Every message was handled without a fault."

    def _strikes(self, statement: Statement) -> bool:
        """Tell whether the fault happens at this statement, and note it."""
        if self.happened or statement.number != self.number:
            return False
        self.happened, self.struck = True, statement
        return True

    def _place(self, last: int) -> str:
        place = f"statement {self.number} of {last}"
        if self.struck is None or not self.struck.offsets:
            return place
        offsets = ", ".join(map(str, self.struck.offsets))
        who = "the handler's, " if self.struck.in_handler else "EMS's, "
        return f"{place} ({who}offset {offsets})"


@dataclass
class DiesBefore(Case):
    kind = "die-before"
    by_signal: bool = False

    def before(self, statement: Statement) -> None:
        if self._strikes(statement):
            self._die()

    def _die(self) -> None:
        if self.by_signal:
            os.kill(os.getpid(), signal.SIGKILL)
        self._statements.die()

    def _begin(self) -> None:
        if not self.by_signal:
            super()._begin()
        else:
            status = in_fork(self._connect_and_consume)
            if status not in (0, -signal.SIGKILL):
                raise EndedByItself(status)
            self.happened = status != 0

    def _connect_and_consume(self) -> None:
        self._consumers.connect()
        self._consumers.consume(self._statements)

    def says(self, last: int) -> str:
        return f"The process died before {self._place(last)}."


@dataclass
class DiesAfter(DiesBefore):
    kind = "die-after"

    def before(self, statement: Statement) -> None:
        """Let it be made."""

    def after(self, statement: Statement) -> None:
        if self._strikes(statement):
            self._die()

    def says(self, last: int) -> str:
        return f"The process died right after {self._place(last)}."


@dataclass
class LosesReply(Case):
    kind = "lost-reply"

    def after(self, statement: Statement) -> None:
        if self._strikes(statement):
            for connection in connections.all(initialized_only=True):
                cut(connection)
            raise OperationalError(SERVER_LOST, "Lost connection to server during query")

    def says(self, last: int) -> str:
        return f"The reply to {self._place(last)} was lost after the server had committed it."


@dataclass
class Freezes(Case):
    kind = "frozen"

    def before(self, statement: Statement) -> None:
        if self._strikes(statement):
            self._consumers.beside(self._others, self._statements)

    def _others(self) -> None:
        self._consumers.expire()
        self._consumers.consume(self._statements)

    def says(self, last: int) -> str:
        return (
            f"The process froze before {self._place(last)}. Its lease ended, another consumer"
            " handled the messages, and then the first one went on."
        )


@dataclass
class ClockForward(Freezes):
    kind = "clock-forward"

    def _others(self) -> None:
        self._consumers.expire(HOUR)

    def says(self, last: int) -> str:
        return (
            f"The clock of the server was set forward by an hour before {self._place(last)}: the"
            " lease ended while the handler ran."
        )


@dataclass
class ClockBack(Freezes):
    kind = "clock-back"

    def _others(self) -> None:
        self._consumers.shift(-HOUR)

    def says(self, last: int) -> str:
        return f"The clock of the server was set back by an hour before {self._place(last)}."


@dataclass
class Twice(Case):
    kind = "twice"
    _lost: set[int] = field(default_factory=set)

    def before(self, statement: Statement) -> None:
        new = set(statement.offsets) - self._lost
        if statement.in_handler or not new:
            return
        if statement.on_sqlite and statement.in_transaction:
            return  # nobody else can write
        self.happened = True
        self._lost |= new
        self._consumers.beside(self._consumers.expire, self._statements)

    def says(self, last: int) -> str:
        return (
            "Each message was delivered twice: its lease ended after the first call, before the"
            " outcome was written."
        )


@dataclass
class Reordered(Case):
    kind = "order"
    seed: int = 0
    order: Sequence[int] = ()

    def _begin(self) -> None:
        self.happened = True
        self.order = self._consumers.reorder(self._shuffled)
        super()._begin()

    def _shuffled(self, rows: list[Any]) -> Sequence[Any]:
        if self.number == 1:
            return rows[::-1]
        return random.Random(self.seed + self.number).sample(rows, len(rows))  # noqa: S311

    def says(self, last: int) -> str:
        offsets = ", ".join(map(str, self.order))
        return f"The messages came one by one in another order: offsets {offsets}."


@dataclass
class SplitCase(Case):
    kind = "split"

    def _begin(self) -> None:
        self.happened = True
        self._consumers.consume(self._statements, self.number)

    def says(self, last: int) -> str:
        return f"The messages came in batches of {self.number}."


KINDS: dict[str, type[Case]] = {
    kind.kind: kind
    for kind in (
        *(DiesBefore, DiesAfter, LosesReply, Freezes, ClockForward, ClockBack),
        *(Twice, Reordered, SplitCase),
    )
}
