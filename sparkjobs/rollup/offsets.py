"""Puts the offsets that a job needs together into ranges, as few and as short as is worth it."""

from __future__ import annotations

from collections.abc import Iterable

# Offsets: to read this many for nothing takes less time than one more range.
NEAR = 1000
# The most ranges of a partition, each of which is a statement.
RANGES = 16

Span = tuple[int, int]  # first … end - 1


def joined(spans: Iterable[Span], most: int = RANGES) -> list[Span]:
    """Return rising spans that cover these, with those that are near each other as one."""
    found = _joined(sorted(spans), NEAR)
    gap = NEAR
    while len(found) > most:
        gap *= 2
        found = _joined(found, gap)
    return found


def _joined(spans: Iterable[Span], gap: int) -> list[Span]:
    found: list[Span] = []
    for first, end in spans:
        if found and first - found[-1][1] <= gap:
            before = found.pop()
            first, end = before[0], max(before[1], end)
        found.append((first, end))
    return found


def left(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Return what of these rising spans is in none of ``taken``, as rising spans."""
    found = list(spans)
    for first_taken, end_taken in taken:
        found = [
            (low, high)
            for first, end in found
            for low, high in ((first, min(end, first_taken)), (max(first, end_taken), end))
            if low < high
        ]
    return found
