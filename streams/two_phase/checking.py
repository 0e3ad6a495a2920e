"""Checks prepared messages that are due: claims them, asks, and writes what was answered."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from django.db import connections

from streams import signals, telemetry
from streams.api import Decision
from streams.consume.registry import autodiscover
from streams.database.clock import database_now
from streams.database.retrying import retrying
from streams.database.transactions import in_transaction
from streams.errors import AlreadyDecided, UnknownPrepared, Unreachable, describe
from streams.logs import event
from streams.models import CheckEndpoint, PreparedRow, UtcNow
from streams.models.prepared import MAX_ERROR
from streams.runtime_settings import system
from streams.two_phase import asking, pausing
from streams.two_phase.claim import claim, give_back, give_up_old, to_people, waiting_checkers
from streams.two_phase.decide import commit, roll_back
from streams.two_phase.forward import forward_due
from streams.two_phase.record import CHECK, about, told
from streams.two_phase.registry import find

logger = logging.getLogger("streams.two_phase")

# The most messages of one claim: of a function, which is called for one after the other, and of an
# endpoint, which is asked by several threads.
OF_FUNCTION, OF_ENDPOINT, THREADS = 20, 100, 16
# Seconds after its claim in which a message is asked about. Its next check may then be due.
ASK_SECONDS = 30.0
ERROR = "error"


@dataclass(frozen=True)
class Answer:
    """Holds what a checker has said; without a decision, why not."""

    decision: Decision | None
    error: str = ""
    is_unreachable: bool = False

    def __str__(self) -> str:
        return self.decision.value if self.decision else ERROR


@dataclass
class CheckResult:
    """Holds what a round of checks did, in messages."""

    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    failed: int = 0  # the checker raised, or gave no answer that can be used
    manual: int = 0  # for a person from now on
    forwarded: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def checks(self) -> int:
        return self.committed + self.rolled_back + self.unknown + self.failed


def check_due(using: str, seconds: float = 60.0, *, biz: str | None = None) -> CheckResult:
    """Check what is due, of ``biz`` or all, for about ``seconds``; send what waits for its topic.

    Call it outside a transaction. It asks the functions that this process knows, and all endpoints
    that are enabled and not paused.
    """
    autodiscover()
    ends = time.monotonic() + seconds
    result = CheckResult()
    for checker in retrying(waiting_checkers, using, using):
        ask = _asker(checker, using)
        if ask is not None:
            while time.monotonic() < ends and ask(result, biz):
                pass
        for row in retrying(give_up_old, using, checker, OF_ENDPOINT, using):
            _tell_manual(row, result, using)
    result.forwarded = forward_due(using)
    return result


def _asker(checker: str, using: str) -> Callable[[CheckResult, str | None], bool] | None:
    """Return what makes one round with this checker; None if it cannot be asked here and now."""
    if find(checker) is not None:
        return partial(_ask_function, checker, using)
    endpoint = pausing.awake(checker, using)
    return None if endpoint is None else partial(_ask_endpoint, endpoint, using)


def _claimed(
    checker: str, at_most: int, using: str, biz: str | None, result: CheckResult
) -> list[PreparedRow]:
    rows, over = retrying(claim, using, checker, at_most, using, biz)
    for row in over:
        _tell_manual(row, result, using)
    return rows


def _ask_function(checker: str, using: str, result: CheckResult, biz: str | None) -> bool:
    """Make one round with a function; return whether there may be more."""
    rows = _claimed(checker, OF_FUNCTION, using, biz, result)
    late = time.monotonic() + ASK_SECONDS
    for number, row in enumerate(rows):
        if time.monotonic() > late:
            give_back(rows[number:], using)
            return True
        _write(row, _answer(checker, partial(asking.ask_function, row)), result, using)
        if not in_transaction(using):  # the function may have broken the connection
            connections[using].close_if_unusable_or_obsolete()
    return len(rows) == OF_FUNCTION


def _ask_endpoint(
    endpoint: CheckEndpoint, using: str, result: CheckResult, biz: str | None
) -> bool:
    """Make one round with an endpoint; return whether there may be more.

    What it did not answer because it is down is given back, and costs no check.
    """
    # One question tells whether an endpoint that was down is there again.
    at_most = 1 if endpoint.is_down else OF_ENDPOINT
    rows = _claimed(endpoint.name, at_most, using, biz, result)
    full = len(rows) == OF_ENDPOINT
    seconds = endpoint.timeout_seconds or system("verifyTimeoutSeconds", using)
    now = database_now(using)
    late = time.monotonic() + ASK_SECONDS

    def answer(row: PreparedRow) -> Answer:
        ask = partial(asking.ask_endpoint, endpoint, row, now, seconds)
        return _answer(endpoint.name, ask)

    while rows and time.monotonic() < late:
        wave, rows = rows[:THREADS], rows[THREADS:]
        with ThreadPoolExecutor(len(wave), thread_name_prefix="ems-check") as threads:
            answers = list(threads.map(answer, wave))
        asked = list(zip(wave, answers, strict=True))
        unreached = [row for row, one in asked if one.is_unreachable]
        give_back(unreached, using)
        for row, one in asked:
            if one.is_unreachable:
                result.failed += 1
                result.errors.append(one.error)
            else:
                _write(row, one, result, using)
        if len(unreached) < len(wave):
            retrying(pausing.note_reached, using, endpoint, using)
        else:
            retrying(pausing.note_down, using, endpoint, len(wave), answers[-1].error, using)
            if endpoint.is_down:
                break
    give_back(rows, using)
    return full and not endpoint.is_down


def _answer(checker: str, ask: Callable[[], Decision]) -> Answer:
    def work() -> Answer:
        try:
            return Answer(ask())
        except Exception as error:  # noqa: BLE001 - the function is the project's own
            return Answer(None, describe(error)[:MAX_ERROR], isinstance(error, Unreachable))

    return telemetry.run(telemetry.CHECK, work, checker)


def _write(row: PreparedRow, answer: Answer, result: CheckResult, using: str) -> None:
    """Carry out what was answered. A decision that comes late is still true."""
    if answer.decision in (Decision.COMMIT, Decision.ROLLBACK):
        decide = commit if answer.decision is Decision.COMMIT else roll_back
        try:
            decide(row.biz, row.biz_key, by=CHECK + row.checker, using=using)
        except (AlreadyDecided, UnknownPrepared) as error:
            logger.info(
                "The answer %s about %s comes late: %s",
                *(answer, row, error),
                extra=event("prepared.late_answer", **about(row, using), answer=str(answer)),
            )
            return
        if answer.decision is Decision.COMMIT:
            result.committed += 1
        else:
            result.rolled_back += 1
        _note(row, answer, using)
        return
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
    if row.checks >= system("verifyMaxTimes", using) and retrying(
        to_people, using, [row.pk], using
    ):
        _tell_manual(row, result, using)


def _note(row: PreparedRow, answer: Answer, using: str) -> None:
    """Keep the answer, if no later check was made meanwhile."""
    mine = PreparedRow.objects.using(using).filter(pk=row.pk, checks=row.checks)
    values = {"last_answer": str(answer), "last_error": answer.error, "checked_at": UtcNow()}
    retrying(lambda: mine.update(**values), using)


def _tell_manual(row: PreparedRow, result: CheckResult, using: str) -> None:
    result.manual += 1
    logger.error(
        "Nobody has said what became of prepared message %s, after %d checks: a person must decide",
        *(row, row.checks),
        extra=event("prepared.manual", **about(row, using), checks=row.checks),
    )
    signals.prepared_manual.send_robust(PreparedRow, **told(row, using))
