"""Diagnoses prepared messages: what is overdue, and what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count

from streams.models import CheckEndpoint, PreparedRow, PreparedState, UtcNow
from streams.observe.diagnoses import ERROR, OK, WARNING, Diagnosis, on
from streams.plural import plural
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
        late_ones = plural(count, "check is overdue", "checks are overdue")
        text = f"{late_ones}: no process asks the checker “{checker}”."
        yield Diagnosis(ERROR, "prepared", text, hint)


def _for_people(using: str) -> Iterator[Diagnosis]:
    rows = PreparedRow.objects.using(using)
    manual = rows.filter(state=PreparedState.MANUAL)[:COUNT_AT_MOST].count()
    if manual:
        text = plural(
            manual,
            "prepared message waits for a decision by a person.",
            "prepared messages wait for a decision by a person.",
        )
        hint = f"ems_prepared list --state manual{on(using)}; then commit or rollback."
        yield Diagnosis(WARNING, "prepared", text, hint)
    unsent = rows.filter(state=PreparedState.UNSENT)[:COUNT_AT_MOST].count()
    if unsent:
        text = plural(
            unsent, "committed message cannot be sent.", "committed messages cannot be sent."
        )
        hint = f"ems_prepared list --state unsent{on(using)}; correct the topic, then resend."
        yield Diagnosis(WARNING, "prepared", text, hint)
    disputed = rows.disputed()[:COUNT_AT_MOST].count()
    if disputed:
        text = plural(
            disputed,
            "message was rolled back by a check, and then committed by its caller.",
            "messages were rolled back by a check, and then committed by their callers.",
        )
        hint = (
            "The check answers ROLLBACK too early: correct it. Then ems_prepared resend;"
            " or rollback if it was right."
        )
        yield Diagnosis(WARNING, "prepared", text, hint)


def _paused(using: str) -> Iterator[Diagnosis]:
    paused = CheckEndpoint.objects.using(home_of(using)).filter(
        enabled=True, paused_until__gt=UtcNow()
    )
    for endpoint in paused.order_by("name")[:NAMES_AT_MOST]:
        text = f"The check endpoint {endpoint} is paused, it is down: {endpoint.last_error}"
        yield Diagnosis(WARNING, "prepared", text, f"ems_prepared test {endpoint}")


def _old(using: str) -> Iterator[Diagnosis]:
    rows = PreparedRow.objects.using(using).filter(state=PreparedState.PREPARED)
    old = rows.filter(created_at__lt=UtcNow(-OLD))[:COUNT_AT_MOST].count()
    if old:
        text = plural(
            old,
            "message has been undecided for more than an hour.",
            "messages have been undecided for more than an hour.",
        )
        hint = f"See the last answers: ems_prepared list --state prepared{on(using)}."
        yield Diagnosis(WARNING, "prepared", text, hint)
