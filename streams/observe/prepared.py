"""Diagnoses prepared messages: what is overdue, and what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count
from django.utils.translation import ngettext

from streams.models import CheckEndpoint, PreparedRow, PreparedState, UtcNow
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis
from streams.sharding import home_of
from streams.two_phase.schedule import OVERDUE

# An undecided message of this age is unusual: most are decided at once.
OLD = timedelta(hours=1)
# Names that are listed, and rows that are counted.
NAMES_AT_MOST, COUNT_AT_MOST = 5, 10_000


def prepared(using: str) -> Iterator[Diagnosis]:
    """Yield what is wrong with prepared messages; nothing where there never were any."""
    rows = PreparedRow.objects.using(using)
    if not rows.exists():
        return
    found = [*_overdue(using), *_for_people(using), *_paused(using), *_old(using)]
    yield from found
    if not found:
        yield Diagnosis(OK, "prepared", "Nothing waits for a person, and no check is overdue.")


def _overdue(using: str) -> Iterator[Diagnosis]:
    waiting = PreparedRow.objects.using(using).filter(state=PreparedState.PREPARED)
    late = waiting.filter(next_at__lt=UtcNow(-OVERDUE)).order_by()
    paused = CheckEndpoint.objects.using(home_of(using)).filter(paused_until__gt=UtcNow())
    late = late.exclude(checker__in=list(paused.values_list("name", flat=True)))
    counted = late.values_list("checker").annotate(n=Count("pk")).order_by("checker")
    hint = "Run ems_consume, or beat, with the project that has it; or enable the endpoint."
    for checker, count in counted[:NAMES_AT_MOST]:
        text = ngettext(
            "%(count)d check is overdue: no process asks the checker “%(checker)s”.",
            "%(count)d checks are overdue: no process asks the checker “%(checker)s”.",
            count,
        )
        yield Diagnosis(ERROR, "prepared", text % {"count": count, "checker": checker}, hint)


def _for_people(using: str) -> Iterator[Diagnosis]:
    rows = PreparedRow.objects.using(using)
    manual = rows.filter(state=PreparedState.MANUAL)[:COUNT_AT_MOST].count()
    if manual:
        text = ngettext(
            "%d prepared message waits for a decision by a person.",
            "%d prepared messages wait for a decision by a person.",
            manual,
        )
        hint = "ems_prepared list --state manual; then commit or rollback."
        yield Diagnosis(WARNING, "prepared", text % manual, hint)
    unsent = rows.filter(state=PreparedState.UNSENT)[:COUNT_AT_MOST].count()
    if unsent:
        text = ngettext(
            "%d committed message cannot be sent.", "%d committed messages cannot be sent.", unsent
        )
        hint = "ems_prepared list --state unsent; correct the topic, then resend."
        yield Diagnosis(WARNING, "prepared", text % unsent, hint)
    disputed = rows.disputed()[:COUNT_AT_MOST].count()
    if disputed:
        text = ngettext(
            "%d message was rolled back by a check, and then committed by its caller.",
            "%d messages were rolled back by a check, and then committed by their callers.",
            disputed,
        )
        hint = (
            "The check answers ROLLBACK too early: correct it. Then ems_prepared resend;"
            " or rollback if it was right."
        )
        yield Diagnosis(WARNING, "prepared", text % disputed, hint)


def _paused(using: str) -> Iterator[Diagnosis]:
    paused = CheckEndpoint.objects.using(home_of(using)).filter(
        enabled=True, paused_until__gt=UtcNow()
    )
    for endpoint in paused.order_by("name")[:NAMES_AT_MOST]:
        text = "The check endpoint %(name)s is paused, it is down: %(error)s"
        values = {"name": endpoint, "error": endpoint.last_error}
        hint = f"ems_prepared test {endpoint}"
        yield Diagnosis(WARNING, "prepared", text % values, hint)


def _old(using: str) -> Iterator[Diagnosis]:
    rows = PreparedRow.objects.using(using).filter(state=PreparedState.PREPARED)
    old = rows.filter(created_at__lt=UtcNow(-OLD))[:COUNT_AT_MOST].count()
    if old:
        text = ngettext(
            "%d message has been undecided for more than an hour.",
            "%d messages have been undecided for more than an hour.",
            old,
        )
        hint = "See the last answers: ems_prepared list --state prepared."
        yield Diagnosis(WARNING, "prepared", text % old, hint)
