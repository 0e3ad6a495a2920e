"""Checks prepared messages that are due: claims them, asks, and writes what was answered."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial

from django.db import Error, connections

from streams import signals, telemetry
from streams.api import Decision
from streams.consume.registry import autodiscover
from streams.database.clock import database_now
from streams.database.retrying import held_by_others, retrying
from streams.database.transactions import in_transaction, short_lock_waits
from streams.errors import (
    AlreadyDecided,
    CheckFailed,
    Unanswered,
    UnknownPrepared,
    Unreachable,
    describe,
)
from streams.logs import event
from streams.models import CheckEndpoint, PreparedRow, UtcNow
from streams.models.endpoint import DOWN_AFTER
from streams.models.prepared import MAX_ERROR
from streams.runtime_settings import system
from streams.sharding import home_of
from streams.two_phase import asking, pausing
from streams.two_phase.claim import claim, due_checkers, give_back, give_up_old, to_people
from streams.two_phase.decide import KnownRow, RowBusy, commit, roll_back
from streams.two_phase.forward import forward_due
from streams.two_phase.record import CHECK, about, told
from streams.two_phase.registry import find

logger = logging.getLogger("streams.two_phase")

# The most messages of one claim: of a function, which is called for one after the other; of an
# endpoint, which is asked by several threads; and of one that is down.
OF_FUNCTION, OF_ENDPOINT, THREADS, OF_DOWN = 20, 100, 16, 20
# Seconds after its claim in which a message is asked about: others wait for their turn meanwhile.
ASK_SECONDS = 10.0
# Seconds after which a checker without a backlog has another turn in the same round.
AGAIN_SECONDS = 5.0
# Seconds to wait for the row of an answer that another transaction has locked, and to try again.
LOCK_SECONDS, LOCK_PATIENCE = 2, 5.0
# Seconds for which the database of the check endpoints is asked.
HOME_PATIENCE = 1.0
ERROR = "error"
DECIDED = (Decision.COMMIT, Decision.ROLLBACK)


@dataclass(frozen=True)
class CheckAnswer:
    """What a checker has said; without a decision, why not."""

    decision: Decision | None
    error: str = ""
    failure: type[CheckFailed] | None = None  # Unreachable or Unanswered, of an endpoint

    def __str__(self) -> str:
        return self.decision.value if self.decision else ERROR


@dataclass
class CheckResult:
    """What a round of checks did, in messages."""

    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    failed: int = 0  # the checker raised, or gave no answer that can be used
    manual: int = 0  # for a person from now on
    forwarded: int = 0
    errors: list[str] = field(default_factory=list)

    def __add__(self, other: CheckResult) -> CheckResult:
        names = [one.name for one in fields(self)]
        return CheckResult(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def checks(self) -> int:
        return self.committed + self.rolled_back + self.unknown + self.failed


def check_due(using: str, seconds: float = 60.0, *, biz: str | None = None) -> CheckResult:
    """Send what waits for its topic; check what is due, of ``biz`` or all, for about ``seconds``.

    Call it outside a transaction. It asks the functions that this process knows, and all endpoints
    that are enabled and not paused. The checkers take turns, and one that becomes due meanwhile
    gets the next one: no one waits for another's backlog.
    """
    autodiscover()
    begun = time.monotonic()
    result = CheckResult()
    # First, and for half of the time: it asks nobody, and a check that fails does not stop it.
    result.forwarded = forward_due(using, begun + seconds / 2)
    turns = _Turns(using)
    try:
        while time.monotonic() < begun + seconds and (name := turns.next()) is not None:
            ask = turns.asker(name)
            turns.had(name, has_more=ask is not None and ask(result, biz))
    finally:
        for name in retrying(due_checkers, using, using):
            for row in retrying(give_up_old, using, name, OF_ENDPOINT, using):
                _tell_manual(row, result, using)
    return result


Asker = Callable[[CheckResult, str | None], bool]


class _Turns:
    """Whose turn it is in a round: of the due checkers, the one asked longest ago."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._asked_at: dict[str, float] = {}
        self._with_more: set[str] = set()
        self._is_home_away = False

    def next(self) -> str | None:
        """Return the name of a checker, None if nothing is left for this round."""
        late = time.monotonic() - AGAIN_SECONDS
        names = retrying(due_checkers, self._using, self._using)
        waiting = [name for name in names if name in self._with_more or self._last(name) <= late]
        random.shuffle(
            waiting
        )  # who comes last in a round without time left is not always the same
        return min(waiting, key=self._last, default=None)

    def _last(self, name: str) -> float:
        return self._asked_at.get(name, -math.inf)

    def had(self, name: str, *, has_more: bool) -> None:
        """Note that a checker has had its turn."""
        self._asked_at[name] = time.monotonic()
        (self._with_more.add if has_more else self._with_more.discard)(name)

    def asker(self, name: str) -> Asker | None:
        """Return what asks a checker, None if it cannot be asked here and now.

        The endpoints of all databases are on one: while that is away, functions are still asked.
        """
        using, home = self._using, home_of(self._using)
        if find(name) is not None:
            return partial(_ask_function, name, using)
        if self._is_home_away:
            return None
        try:
            endpoint = retrying(pausing.awake, home, name, using, patience=HOME_PATIENCE)
        except Error as error:
            if home == using:
                raise
            self._is_home_away = True
            logger.warning(
                "The check endpoints are on %s, which is away; functions are asked: %s",
                *(home, describe(error)),
                extra=event("prepared.endpoints_away", database=home, error=type(error).__name__),
            )
            return None
        return None if endpoint is None else partial(_ask_endpoint, endpoint, using)


@contextmanager
def _claimed(
    checker: str, at_most: int, using: str, biz: str | None, result: CheckResult, *, with_body: bool
) -> Iterator[list[PreparedRow]]:
    """Claim messages; what is left in the list at the end of the block is given back."""
    rows, over = retrying(lambda: claim(checker, at_most, using, biz, with_body=with_body), using)
    for row in over:
        _tell_manual(row, result, using)
    try:
        yield rows
    finally:
        _give_back(rows, using)


def _give_back(rows: list[PreparedRow], using: str) -> None:
    for row in rows:
        with _skipping_locked(row, using):
            retrying(give_back, using, [row], using, patience=LOCK_PATIENCE)


@contextmanager
def _skipping_locked(row: PreparedRow, using: str) -> Iterator[None]:
    """Do without what the block writes if another transaction has the row: its owner decides."""
    try:
        with short_lock_waits(using, LOCK_SECONDS):
            yield
    except Error as error:
        if not held_by_others(error, using):
            raise
        logger.info(
            "Prepared message %s is locked: another transaction decides about it",
            row,
            extra=event("prepared.locked", **about(row, using), error=type(error).__name__),
        )


def _ask_function(checker: str, using: str, result: CheckResult, biz: str | None) -> bool:
    """Make one round with a function; return whether there may be more."""
    with _claimed(checker, OF_FUNCTION, using, biz, result, with_body=True) as rows:
        is_full = len(rows) == OF_FUNCTION
        late = time.monotonic() + ASK_SECONDS
        while rows and time.monotonic() < late:
            row = rows[0]
            answer = _answer(checker, partial(asking.ask_function, row))
            del rows[0]  # it was asked about
            close_broken(using)
            _write(row, answer, result, using)
        return is_full or bool(rows)


def close_broken(using: str) -> None:
    """Close the connections that a function has broken, so that the next use opens others.

    A transaction that is open is left alone. So is one that is old by CONN_MAX_AGE, 0 by default:
    it would be opened again for each message.
    """
    was_joined = in_transaction(using)
    for connection in connections.all(initialized_only=True):
        given = connection.settings_dict["AUTOCOMMIT"]
        is_suspect = connection.errors_occurred or connection.autocommit != given
        if connection.connection is not None and is_suspect and not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
    if not was_joined:
        connections[using].set_autocommit(True)  # the project may have it off


def _ask_endpoint(
    endpoint: CheckEndpoint, using: str, result: CheckResult, biz: str | None
) -> bool:
    """Make one round with an endpoint; return whether there may be more.

    What it does not answer has spent its check: it may be the fault of that message. If so many
    different ones in a row are not answered that it is down, they have spent none.
    """
    was_down = endpoint.is_down
    at_most = OF_DOWN if was_down else OF_ENDPOINT
    home = home_of(using)
    failed: list[tuple[PreparedRow, CheckAnswer]] = []
    with _claimed(endpoint.name, at_most, using, biz, result, with_body=False) as rows:
        is_full = len(rows) == at_most
        if (
            was_down
        ):  # a message that is never answered must not be the only one that is asked about
            random.shuffle(rows)
            rows.sort(key=lambda row: row.last_answer == ERROR)
        seconds = endpoint.timeout_seconds or system("verifyTimeoutSeconds", using)
        now = database_now(using)
        late = time.monotonic() + ASK_SECONDS
        running: dict[Future[CheckAnswer], PreparedRow] = {}
        asked = in_a_row = 0
        with ThreadPoolExecutor(THREADS, thread_name_prefix="ems-check") as threads:
            while True:
                # A message that had no answer the last time, either, says nothing new of it.
                suspected = asked if endpoint.is_down else endpoint.failures + in_a_row
                may_ask = suspected < DOWN_AFTER and time.monotonic() < late
                if rows and may_ask and len(running) < THREADS:
                    row = rows.pop(0)
                    ask = partial(asking.ask_endpoint, endpoint, row, now, seconds)
                    running[threads.submit(_answer, endpoint.name, ask)] = row
                    asked += 1
                    continue
                if not running:
                    break
                # Each is written when it comes: it waits for no message that is never answered.
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    row, answer = running.pop(future), future.result()
                    if answer.failure is None:
                        in_a_row = 0
                        retrying(pausing.note_reached, home, endpoint, using)
                        _write(row, answer, result, using)
                    else:
                        failed.append((row, answer))
                        in_a_row += answer.failure is Unreachable or row.last_answer != ERROR
        if failed and (in_a_row or endpoint.is_down):
            error = failed[-1][1].error
            retrying(pausing.note_down, home, endpoint, in_a_row, error, using)
        for row, answer in failed:
            _write_failure(row, answer, result, using, is_spent=not endpoint.is_down)
    return (is_full or was_down) and not endpoint.is_down


def _write_failure(
    row: PreparedRow, answer: CheckAnswer, result: CheckResult, using: str, *, is_spent: bool
) -> None:
    """Write that there was no answer; nothing is spent if nobody was asked, or not ``is_spent``."""
    if answer.failure is Unanswered and is_spent:
        _write(row, answer, result, using)
        return
    result.failed += 1
    result.errors.append(answer.error)
    if answer.failure is Unanswered:
        with _skipping_locked(row, using):
            _note(row, answer, using)
    _give_back([row], using)


def _answer(checker: str, ask: Callable[[], Decision]) -> CheckAnswer:
    def work() -> CheckAnswer:
        try:
            return CheckAnswer(ask())
        except (Unreachable, Unanswered) as error:
            return CheckAnswer(None, describe(error)[:MAX_ERROR], type(error))
        except Exception as error:  # noqa: BLE001 - the function is the project's own
            return CheckAnswer(None, describe(error)[:MAX_ERROR])

    return telemetry.run(telemetry.CHECK, work, checker)


def _write(row: PreparedRow, answer: CheckAnswer, result: CheckResult, using: str) -> None:
    """Carry out what was answered. A decision that comes late is still true."""
    if answer.decision in DECIDED:
        # Nobody is waited for at the row, so the session needs no other limit for it.
        try:
            _decide(row, answer, result, using, waits=False)
        except RowBusy:
            pass
        except Error as error:  # where its topic is made, or by a deadlock
            if not held_by_others(error, using):
                raise
        else:
            return
    with _skipping_locked(row, using):
        if answer.decision in DECIDED:
            _decide(row, answer, result, using, waits=True)
        else:
            _leave_open(row, answer, result, using)


def _decide(
    row: PreparedRow, answer: CheckAnswer, result: CheckResult, using: str, *, waits: bool
) -> None:
    is_commit = answer.decision is Decision.COMMIT
    decide = commit if is_commit else roll_back
    try:
        done = decide(
            *(row.biz, row.biz_key),
            by=CHECK + row.checker,
            using=using,
            patience=LOCK_PATIENCE,
            known=KnownRow(row.pk, row.topic),
            waits=waits,
        )
    except (AlreadyDecided, UnknownPrepared) as error:
        logger.info(
            "The answer %s about %s comes late: %s",
            *(answer, row, error),
            extra=event("prepared.late_answer", **about(row, using), answer=str(answer)),
        )
        return
    result.committed += is_commit
    result.rolled_back += not is_commit
    if not done.decided_by.startswith(CHECK):  # somebody else has said the same before
        _note(row, answer, using)


def _leave_open(row: PreparedRow, answer: CheckAnswer, result: CheckResult, using: str) -> None:
    if answer.decision is None:
        result.failed += 1
        result.errors.append(answer.error)
        logger.warning(
            "The check of %s by %s failed: %s",
            *(row, row.checker, answer.error),
            extra=event("prepared.check_failed", **about(row, using), checker=row.checker),
        )
    else:
        result.unknown += 1
    _note(row, answer, using)
    if row.is_last and retrying(to_people, using, [row.pk], using):
        _tell_manual(row, result, using)


def _note(row: PreparedRow, answer: CheckAnswer, using: str) -> None:
    """Keep the answer, if no later check was made meanwhile."""
    mine = PreparedRow.objects.using(using).filter(pk=row.pk, checks=row.checks)
    values = {"last_answer": str(answer), "last_error": answer.error, "checked_at": UtcNow()}
    retrying(lambda: mine.update(**values), using, patience=LOCK_PATIENCE)


def _tell_manual(row: PreparedRow, result: CheckResult, using: str) -> None:
    result.manual += 1
    logger.error(
        "Nobody has said what became of prepared message %s, after %d checks: a person must decide",
        *(row, row.checks),
        extra=event("prepared.manual", **about(row, using), checks=row.checks),
    )
    signals.prepared_manual.send_robust(PreparedRow, **told(row, using))
