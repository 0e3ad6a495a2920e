"""Puts the offsets that a job needs together into ranges, as few and as short as is worth it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

# Offsets: to read this many for nothing takes less time than one more range.
NEAR = 1000
# The most ranges of a partition, each of which is a query of its own to Spark.
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


def turns(spans: Mapping[int, list[Span]]) -> Iterator[dict[int, Span]]:
    """Yield one range of each partition at a time, since the source takes one range of each."""
    for turn in range(max(map(len, spans.values()), default=0)):
        yield {id_: found[turn] for id_, found in spans.items() if turn < len(found)}
