"""A group with a rate: what begins in any second, in all processes together. Real processes."""

from __future__ import annotations

from itertools import cycle

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

# Each start is written with the time of the server: rows of (group, value).
CODE = """
import json, sys, time
from django.core.management import call_command
from django.db import connection
from streams import consumer

options, seconds = json.loads(sys.argv[1]), float(sys.argv[2])

def note(*messages):
    values = ", ".join(["('start', 'orders', %d, %d, UTC_TIMESTAMP(6))" % (m.partition, m.offset)
                        for m in messages])
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO hostapp_handled (`group`, topic, `partition`, `offset`, value)"
                       " VALUES " + values)
    time.sleep(seconds)
    if messages[0].offset % 10 == 7 and messages[0].attempt == 1:
        raise ZeroDivisionError

if "batch" in options:
    @consumer("orders", group="mail", start="earliest", **options)
    def handle_all(messages):
        note(*messages)
else:
    @consumer("orders", group="mail", start="earliest", **options)
    def handle(message):
        note(message)

call_command("ems_consume", "--threads", "5")
"""

MICROSECONDS = 1_000_000


def starts() -> list[int]:
    """Return when each message began, in microseconds of the server's clock, in order."""
    from datetime import datetime

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


def a_second(times: list[int]) -> float:
    """Return how many began in a second, without the first one: processes start."""
    late = [at for at in times if at > times[0] + MICROSECONDS]
    return (len(late) - 1) / (late[-1] - late[0]) * MICROSECONDS


def run(
    spawn: Spawn, rate: str, *, number: int, kills: int, seconds: float = 0.0, **options: object
) -> list[int]:
    """Let 20 threads in 4 processes begin so many messages, of which some fail; kill some."""
    import json

    send_many([Outgoing("orders", n, key=n) for n in range(number + 2000)])
    words = (json.dumps({"rate": rate, **options}), seconds)
    children = [spawn(CODE, *words) for _ in range(4)]
    turns = cycle(range(4))
    for kill in range(kills):
        goal = number * (kill + 1) // (kills + 1)
        wait_for(lambda goal=goal: Handled.objects.count() > goal)
        at = next(turns)
        children[at].kill()
        children[at] = spawn(CODE, *words)
    wait_for(lambda: Handled.objects.count() > number)
    for child in children:
        child.kill()
    return starts()


@pytest.mark.parametrize(
    ("rate", "options"),
    [
        ("60/s", {}),
        ("60/s", {"seconds": 0.1}),
        ("100/s, burst=20", {"batch": 10}),
        ("60/s", {"ordered": True}),
        ("400/s", {}),
    ],
)
def test_no_second_has_more_starts_than_the_rate_and_its_burst(
    spawn: Spawn, rate: str, options: dict[str, object]
) -> None:
    of = Rate.of(rate)
    times = run(spawn, rate, number=int(5 * of.a_second), kills=4, **options)
    print(of, most_in_a_second(times), a_second(times))
    assert most_in_a_second(times) <= of.a_second + of.burst
    assert a_second(times) >= 0.95 * of.a_second
