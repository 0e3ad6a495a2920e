"""Accounts for prepared messages: what was decided, what was sent, and what their callers saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from streams.models import Message, PreparedRow, PreparedState
from tests.lab.scenarios.models import Sent

TOPIC, CHECKER = "A", "scenario.work"

Key = tuple[str, int]

# What a caller was told, and the states that its message may then have.
TOLD = {
    "prepared": {PreparedState.SENT, PreparedState.ROLLED_BACK},
    "committed": {PreparedState.SENT},
    "rolled back": {PreparedState.ROLLED_BACK},
}


def unfinished() -> int:
    """Return how many prepared messages are neither sent nor rolled back."""
    ended = [PreparedState.SENT, PreparedState.ROLLED_BACK]
    return PreparedRow.objects.exclude(state__in=ended).count()


def counts() -> str:
    """Return how many were decided by whom, in words."""
    rows = PreparedRow.objects.values_list("state", "decided_by")
    found = Counter((state, by.partition(":")[0]) for state, by in rows)
    return ", ".join(f"{n:,} {state} by a {by}" for (state, by), n in sorted(found.items()))


def differences(told: Iterable[tuple[str, Key]]) -> list[str]:
    """Return where a row, its work, its message and what its caller was ``told`` do not agree."""
    states: dict[Key, str] = {
        (biz, int(key)): state
        for biz, key, state in PreparedRow.objects.values_list("biz", "biz_key", "state")
    }
    done = set(Sent.objects.filter(topic=TOPIC, is_void=False).values_list("producer", "n"))
    messages: Counter[Key] = Counter(
        (headers["ems-biz"], int(headers["ems-biz-key"]))
        for headers in Message.objects.values_list("headers", flat=True)
        if headers
    )
    wrong = [f"{key} was sent, and never prepared" for key in messages.keys() - states.keys()]
    wrong += [f"{key} was done, and never prepared" for key in done - states.keys()]
    for key, state in states.items():
        expected = PreparedState.SENT if key in done else PreparedState.ROLLED_BACK
        if state != expected:
            wrong.append(f"{key} is {state}, not {expected}")
        if messages[key] != (key in done):
            wrong.append(f"{key} was sent {messages[key]} times, and its work is {key in done}")
    for what, key in told:
        if states.get(key) not in TOLD[what]:
            wrong.append(f"{key} was {what}, its caller was told, and is {states.get(key)}")
    if PreparedRow.objects.disputed().exists():
        wrong.append("a check has rolled back what its caller has committed")
    return wrong
