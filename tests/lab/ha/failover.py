"""Plays one failover: producers and consumers run, the primary fails, another one takes over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from django.core.management import call_command
from django.db import Error, connection
from django.db.models import Q

from streams.models import DeadMessage, Delivery, Message, RetryMessage
from streams.observe.audit.walk import audit
from streams.operate.topics import create
from tests.lab.ha.faults import Fault, Stage
from tests.lab.ha.notes import noted
from tests.lab.ha.producer import TOPIC
from tests.lab.ha.result import Result
from tests.lab.scenarios.consumed import all_is_consumed
from tests.lab.scenarios.fleet import Process

GROUPS = ("mail", "stats")
BEFORE_SECONDS, AFTER_SECONDS = 4.0, 6.0
SETTLE_SECONDS = 180.0
PARTITIONS = 2
# The most messages that are shown of what went wrong.
SHOWN = 5

Place = tuple[str, str]  # of a message: producer and number


def play(stage: Stage, fault: Fault) -> Result:
    """Play it, wait until all is consumed, and count."""
    call_command("migrate", run_syncdb=True, verbosity=0)
    create(TOPIC, PARTITIONS, "default")
    _cast(stage)
    try:
        for process in (*stage.consumers, *stage.producers):
            process.start()
        for process in stage.consumers:
            assert process.says("database connections", 60), process.log()
        _until("messages are handled", lambda: any(noted("handled", stage.folder)))
        time.sleep(BEFORE_SECONDS)  # the length of the quiet before it is part of what is played
        began = time.monotonic()
        for pause in fault(stage):
            time.sleep(pause)
        over = time.monotonic()
        time.sleep(AFTER_SECONDS)
        for process in stage.producers:
            process.stop()
        _until("all is consumed", all_is_consumed)
        return _count(stage, began, over)
    except BaseException:
        for process in (*stage.consumers, *stage.producers):
            print(f"--- {process.name}\n{process.log()[-3000:]}", flush=True)
        raise
    finally:
        for process in (*stage.consumers, *stage.producers):
            process.stop()
        connection.close()


def _cast(stage: Stage) -> None:
    folder = stage.folder

    def process(name: str, *words: str) -> Process:
        return Process(name, ["-m", *words], folder / f"{name}.log")

    stage.producers = [process(n, "tests.lab.ha.producer", n) for n in ("P1", "P2", "P3")]
    consume = ("django", "ems_consume", "--no-supervisor", "--start", "earliest")
    stage.consumers = [process(n, *consume) for n in ("C1", "C2")]


def _until(what: str, condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < limit:
        with suppress(Error):
            if condition():
                return
        connection.close()  # it may lead to the old primary
        time.sleep(0.2)
    raise AssertionError(f"not within {SETTLE_SECONDS:g} s: {what}")


def _count(stage: Stage, began: float, over: float) -> Result:
    sent: dict[str, set[Place]] = {"acked": set(), "unknown": set(), "failed": set()}
    acked_at: list[float] = []
    for outcome, name, n, at in noted("sent", stage.folder):
        sent[outcome].add((name, n))
        if outcome == "acked":
            acked_at.append(float(at))
    handled: Counter[tuple[str, Place]] = Counter()
    places: dict[str, set[Place]] = {}
    handled_at = []
    for group, place, name, n, at in noted("handled", stage.folder):
        handled[group, (name, n)] += 1
        places.setdefault(place, set()).add((name, n))
        handled_at.append(float(at))
    there = _there()
    seen = set(there) | {message for _group, message in handled}
    acked = sent["acked"]
    unhandled = {(g, m) for g in GROUPS for m in acked & set(there) if (g, m) not in handled}
    for group, message in sorted(unhandled)[:SHOWN]:
        _show(group, message, there[message])
    return Result(
        acked=len(acked),
        acked_before=sum(at < began for at in acked_at),
        acked_after=sum(at > over for at in acked_at),
        handled_after=sum(at > over for at in handled_at),
        lost=len(acked - set(there)),
        unhandled=len(unhandled),
        unknown=len(sent["unknown"]),
        unknown_there=len(sent["unknown"] & seen),
        failed=len(sent["failed"]),
        failed_there=len(sent["failed"] & seen),
        twice=sum(handled.values()) - len(handled),
        reused=sum(len(messages) > 1 for messages in places.values()),
        no_send=_longest_gap(acked_at),
        no_handled=_longest_gap(handled_at),
        ended=sum(process.status is not None for process in stage.consumers),
        findings=[str(finding) for finding in audit("default")],
        rewound=_rewound(stage),
    )


def _there() -> dict[Place, Message]:
    """Return the messages of the log, as the primary has it now."""
    found: dict[Place, Message] = {}
    for row in Message.objects.iterator():
        name, n = bytes(row.body).decode().strip("[]").split(",") if row.body else ("", "")
        found[name.strip(' "'), n.strip()] = row
    return found


def _show(group: str, message: Place, row: Message) -> None:
    """Print what the tables say of a message that a group has not handled."""
    print(f"{group} has not handled {message}, {row.partition_id}/{row.offset}:")
    where = Q(group__name=group, partition=row.partition_id)
    for kind in (
        Delivery.objects.filter(where, first_offset__lte=row.offset, last_offset__gte=row.offset),
        RetryMessage.objects.filter(where & Q(offset=row.offset)),
        DeadMessage.objects.filter(where & Q(offset=row.offset)),
    ):
        print(*kind.values(), sep="\n")


def _longest_gap(times: list[float]) -> float:
    ordered = sorted(times)
    return round(max((b - a for a, b in pairwise(ordered)), default=0.0), 1)


def _rewound(stage: Stage) -> float | None:
    """Return the seconds from the promotion until the first consumer said so."""
    lines = (line.split() for process in stage.consumers for line in process.log().splitlines())
    said = [float(words[0]) for words in lines if "CRITICAL" in words[1:2] and "rewound:" in words]
    return round(min(said) - stage.promoted, 1) if said else None
