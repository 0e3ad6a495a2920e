"""Compares the units of work in places of two sizes, and says which of them have grown."""

from __future__ import annotations

from collections.abc import Iterator

from tests.lab.benchmarks.figures import Options, Row
from tests.lab.benchmarks.growth.counting import Count
from tests.lab.benchmarks.growth.held import held
from tests.lab.benchmarks.growth.place import make
from tests.lab.benchmarks.growth.units import Counts, counts

SMALL = 10_000  # messages
PARTITIONS, GROUPS = 1_000, 300
HELD = "messages while a snapshot and a transaction are open"
# What has just left the inbox is stepped over until the server has purged it; of a small table the
# optimizer may read all rows; some looks are due by the clock. Growth would be thousands.
SLACK_READS, SLACK_SHARE, SLACK_STATEMENTS = 150, 1.1, 2
# What a unit may cost more for each further partition or group, since it looks at each of them:
# (rows read, statements). Of HELD it is for each message.
FOR_EACH: dict[str, dict[str, tuple[float, float]]] = {
    "partitions": {
        "a claim of 100 and its settlement": (2.1, 0),  # all cursors that are behind
        "a look of a consumer": (7.1, 0),
        "an idle pass": (4.1, 0),
        "an idle sweep": (1.1, 0),  # each delivery of a small log, of which there is one for each
        "the lag of all groups": (8.5, 0.01),  # so here; ages are read for 200 partitions at a time
        "a purge of 100": (2.1, 1),  # of the topic: a look at each partition
    },
    "groups": {
        "a look of a consumer": (5.5, 0),
        "an idle sweep": (51, 0),  # each delivery of a small log, of which there are 50 for each
        "the lag of all groups": (65, 0),  # so here
        "a purge of 100": (7.5, 0),  # each group may hold it back
    },
    # Of each delivery that has ended under a snapshot its entry as an open one stays in the index.
    # The optimizer counts these entries, and may rather read the deliveries of the group.
    HELD: {
        "an idle sweep": (0.03, 0),
        "the lag of all groups": (0.08, 0),
    },
}


def figures(options: Options) -> Iterator[Row]:
    large = options.messages or (100_000 if options.quick else 1_000_000)
    many = 10 if options.quick else 1
    yield from compared(
        "messages", SMALL, counts(make(messages=SMALL)), large, counts(make(messages=large))
    )
    partitions, groups = PARTITIONS // many, GROUPS // many
    messages = 200 * partitions
    before = counts(make(messages=messages))
    spread = counts(make(messages=messages, partitions=partitions))
    yield from compared("partitions", 1, before, partitions, spread)
    before = counts(make(messages=SMALL))
    shared = counts(make(messages=SMALL, groups=groups))
    yield from compared("groups", 1, before, groups, shared)
    before, now, passed = held(make(messages=SMALL), options.hold, rounds=20 // many)
    yield from compared(HELD, 0, before, passed, now)


def compared(axis: str, small: int, before: Counts, large: int, now: Counts) -> Iterator[Row]:
    for unit, count in before.items():
        each = FOR_EACH.get(axis, {}).get(unit, (0.0, 0.0))
        yield Row(
            f"{unit}: {small:,} → {large:,} {axis}",
            {
                "axis": axis,
                "unit": unit,
                "small": small,
                "large": large,
                "reads before": count.reads,
                "reads": now[unit].reads,
                "statements before": count.statements,
                "statements": now[unit].statements,
            },
            failure=_grown(count, now[unit], each, large - small),
        )


def _grown(before: Count, now: Count, each: tuple[float, float], more: int) -> str:
    """Return what has grown beyond what it may; "" if nothing has."""
    reads = before.reads * SLACK_SHARE + SLACK_READS + each[0] * more
    statements = before.statements + SLACK_STATEMENTS + each[1] * more
    grown = []
    if now.reads > reads:
        grown.append(f"reads {before.reads:,} → {now.reads:,}, at most {reads:,.0f}")
    if now.statements > statements:
        grown.append(f"statements {before.statements} → {now.statements}, at most {statements:g}")
    return "; ".join(grown)
