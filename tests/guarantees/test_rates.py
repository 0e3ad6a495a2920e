"""A group with a rate: what begins in any second, in all processes together. Real processes."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from streams import Outgoing, send_many
from streams.consume.rate import Rate
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
    pytest.mark.mysql,
]

# Each start is written with its time, that of the one host: rows of (group, value). The INSERT may
# come later.
CODE = """
import json, sys, time
from datetime import UTC, datetime
from django.core.management import call_command
from django.db import connection
from streams import consumer

options, seconds, fails = json.loads(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])

def note(*messages):
    at = datetime.now(UTC).isoformat()
    values = ", ".join(["('start', 'orders', %d, %d, '%s')" % (m.partition, m.offset, at)
                        for m in messages])
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO hostapp_handled (`group`, topic, `partition`, `offset`, value)"
                       " VALUES " + values)
    time.sleep(seconds)
    if fails and messages[0].offset % 10 == 7 and messages[0].attempt == 1:
        raise ZeroDivisionError

if "batch" in options:
    @consumer("orders", group="mail", start="earliest", retry=[0.5], **options)
    def handle_all(messages):
        note(*messages)
else:
    @consumer("orders", group="mail", start="earliest", retry=[0.5], **options)
    def handle(message):
        note(message)

call_command("ems_consume", "--threads", "5")
"""

MICROSECONDS = 1_000_000


def starts() -> list[int]:
    """Return when each message began, in microseconds, in order."""
    rows = Handled.objects.filter(group="start").values_list("value", flat=True)
    times = [datetime.fromisoformat(row).timestamp() for row in rows]
    return sorted(int(at * MICROSECONDS) for at in times)


def most_in_a_second(times: list[int]) -> int:
    first, most = 0, 0
    for last, at in enumerate(times):
        while at - times[first] > MICROSECONDS:
            first += 1
        most = max(most, last + 1 - first)
    return most


def best_of(times: list[int], seconds: float) -> float:
    """Return how many began in a second, in the best stretch of so many seconds.

    On a busy machine there are others, in which no thread had a processor.
    """
    length, first, most = int(seconds * MICROSECONDS), 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= length:
            first += 1
        most = max(most, last + 1 - first)
    return most / seconds


def has_begun(number: int) -> bool:
    return Handled.objects.count() > number


def run(
    spawn: Spawn, *, number: int, kills: int, sleep: float = 0.0, fails: bool = True, **options: Any
) -> list[int]:
    """Let 20 threads in 4 processes begin so many messages, and kill a process now and then."""
    send_many([Outgoing("orders", n, key=n) for n in range(2 * number)])
    words = (json.dumps(options), sleep, int(fails))
    children = [spawn(CODE, *words) for _ in range(4)]
    turns = cycle(range(4))
    for kill in range(kills):
        goal = number * (kill + 1) // (kills + 1)
        wait_for(partial(has_begun, goal))
        at = next(turns)
        children[at].kill()
        children[at] = spawn(CODE, *words)
    wait_for(partial(has_begun, number))
    for child in children:
        child.kill()
    return starts()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("rate", "options"),
    [
        ("10/s", {"kills": 2}),
        ("60/s", {"kills": 4, "sleep": 0.1}),
        ("400/s", {"kills": 2}),
        ("50/s, burst=20", {"kills": 2, "batch": 10}),
        # A partition stands still when its holder is killed.
        ("10/s", {"ordered": True, "fails": False}),
        ("10/s", {"kills": 2, "atomic": True}),
    ],
)
def test_no_second_has_more_starts_than_the_rate_and_its_burst(
    spawn: Spawn, rate: str, options: dict[str, Any]
) -> None:
    of = Rate.of(rate)
    options = {"kills": 0, **options}
    seconds = 5 + 2 * options["kills"]  # two of them are without a restart
    times = run(spawn, number=int(seconds * of.a_second), rate=rate, **options)
    assert most_in_a_second(times) <= of.a_second + of.burst
    assert best_of(times, 2) >= 0.95 * of.a_second
