"""Pauses an endpoint that is down: an outage of hours must not use up the checks of messages."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q

from streams.models import CheckEndpoint, UtcNow
from streams.models.endpoint import DOWN_AFTER
from streams.sharding import home_of
from streams.two_phase.registry import has_any

# Seconds of the first pause and of the longest one; each is twice as long as the one before.
FIRST_PAUSE, LONGEST_PAUSE = 30, 600


def may_check(using: str) -> bool:
    """Tell whether this process may have to check prepared messages."""
    endpoints = CheckEndpoint.objects.using(home_of(using))
    return has_any() or endpoints.filter(enabled=True).exists()


def awake(name: str, using: str) -> CheckEndpoint | None:
    """Return the endpoint if it may be asked now."""
    rows = CheckEndpoint.objects.using(home_of(using)).filter(name=name, enabled=True)
    return rows.filter(Q(paused_until=None) | Q(paused_until__lte=UtcNow())).first()


def note_reached(endpoint: CheckEndpoint, using: str) -> None:
    """Forget its failures: it has answered."""
    if endpoint.failures:
        _change(endpoint, using, failures=0, paused_until=None, last_error="")
        endpoint.failures = 0


def note_down(endpoint: CheckEndpoint, count: int, error: str, using: str) -> None:
    """Count ``count`` failures in a row, up to the limit; from there on each call is a pause."""
    more = 1 if endpoint.is_down else min(count, DOWN_AFTER - endpoint.failures)
    failures = endpoint.failures + more
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - DOWN_AFTER, 10))
    until = UtcNow(timedelta(seconds=pause)) if failures >= DOWN_AFTER else None
    _change(endpoint, using, failures=failures, paused_until=until, last_error=error[:500])
    endpoint.failures = failures


def _change(endpoint: CheckEndpoint, using: str, **values: object) -> None:
    CheckEndpoint.objects.using(home_of(using)).filter(pk=endpoint.pk).update(**values)
