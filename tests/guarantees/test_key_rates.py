"""A group with a rate for each key: what begins of a key in any second. Real processes."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from functools import partial
from itertools import cycle
from typing import Any

import pytest

from streams import Outgoing, send_many
from streams.consume.rate import Rate
from streams.models import Delivery, RetryMessage
from streams.observe.audit.walk import audit
from tests.guarantees.test_rates import MICROSECONDS, best_of, has_begun, most_in_a_second
from tests.hostapp.models import Handled
from tests.processes import Spawn, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.slow,
    pytest.mark.mysql,
]

# Each start is written with its time, that of the one host: rows of (key, attempt, value). The
# INSERT may come later.
CODE = """
import json, sys
from datetime import UTC, datetime
from django.core.management import call_command
from django.db import connection
from streams import consumer

options = json.loads(sys.argv[1])

def note(*messages):
    at = datetime.now(UTC).isoformat()
    row = "('%s', 'orders', %d, %d, '%s')"
    values = [row % (m.headers["tenant"], m.attempt, m.offset, at) for m in messages]
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO hostapp_handled (`group`, topic, `partition`, `offset`, value)"
                       " VALUES " + ", ".join(values))

if "batch" in options:
    @consumer("orders", group="mail", start="earliest", rate_key="tenant", **options)
    def handle_all(messages):
        note(*messages)
else:
    @consumer("orders", group="mail", start="earliest", rate_key="tenant", **options)
    def handle(message):
        note(message)

call_command("ems_consume", "--threads", "5")
"""

SMALL = ("b", "c")  # with a few messages each, behind those of "a"


def starts_of_keys() -> dict[str, list[int]]:
    found = defaultdict(list)
    for key, at in Handled.objects.values_list("group", "value"):
        found[key].append(int(datetime.fromisoformat(at).timestamp() * MICROSECONDS))
    return {key: sorted(times) for key, times in found.items()}


def all_have_begun(number: int) -> bool:
    return Handled.objects.values("offset").distinct().count() == number


@pytest.mark.parametrize(
    ("rate", "options", "share"),
    [
        ("10/s", {}, 0.8),
        pytest.param("40/s", {}, 0.4, marks=pytest.mark.exhaustive),
        pytest.param("10/s", {"atomic": True}, 0.8, marks=pytest.mark.exhaustive),
        pytest.param("10/s, burst=20", {"batch": 10}, 0.8, marks=pytest.mark.exhaustive),
    ],
)
def test_no_second_has_more_starts_of_a_key_than_the_rate_and_its_burst(
    spawn: Spawn, rate: str, options: dict[str, Any], share: float
) -> None:
    """20 threads in 4 processes, and kills; nothing is lost, and the other keys do not wait.

    ``share``: of its rate, what a key gets that has enough waiting. A start that comes later than
    0.1 s after its slot has lost that slot; and the start of a message that has waited needs four
    commits: the claim, the slot, the start and the settlement. So 40/s are 160 commits a second,
    which a busy machine does not do all the time: little is demanded of it, and no share of such a
    rate is promised. No more than the rate begins all the same.
    """
    of = Rate.of(rate)
    keys = ["a"] * int(6 * of.a_second) + list(SMALL) * 4
    send_many([Outgoing("orders", n, headers={"tenant": key}) for n, key in enumerate(keys)])
    words = json.dumps({"rate": rate, **options})
    children = [spawn(CODE, words) for _ in range(4)]
    turns = cycle(range(4))
    for kill in range(2):
        wait_for(partial(has_begun, len(keys) * (kill + 1) // 3))
        at = next(turns)
        children[at].kill()
        children[at] = spawn(CODE, words)
    wait_for(partial(all_have_begun, len(keys)), timeout=60)
    wait_for(lambda: not (RetryMessage.objects.exists() or Delivery.objects.open().exists()))
    for child in children:
        child.kill()
    times = starts_of_keys()
    for of_key in times.values():
        assert most_in_a_second(of_key) <= of.a_second + of.burst
    assert best_of(times["a"], 2) >= share * of.a_second
    assert all(times[key][-1] < times["a"][-1] for key in SMALL)
    assert not audit("default")
