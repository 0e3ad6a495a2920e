"""What a claim holds in memory is bounded, however large its messages are and whatever they do."""

from __future__ import annotations

import sys
from random import Random

import pytest
from django.db import connection

from streams import Outgoing, send, send_many
from streams.conf import CLAIM_BYTES
from streams.log.sequencer import sequence
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    # Of the process itself: ru_maxrss would be that of the tests, from which it was forked.
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

MIB = 1024 * 1024

# The bodies of a claim, once more in the buffer of the driver, the message in hand, and what the
# allocator does not give back at once.
BOUND = 2 * CLAIM_BYTES + 32 * MIB

CONSUMER = """
import re
from pathlib import Path
from streams import Retry, consumer
from streams.consume.limits import Overrides
from tests.consuming import Process

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

handled = []

@consumer("orders", group="mail")
def mail(message):
    handled.append(len(message.body) + len(message.headers))
    {action}

process = Process("mail", overrides=Overrides(batch=1000))
before = peak()
while process.worker.step() == 0.0:
    pass
print("handled", len(handled), "grown by", peak() - before)
"""

LARGE = """
import re
from pathlib import Path
from streams import consumer
from streams.models import Delivery
from tests.consuming import Process

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

handled = []

@consumer("orders", group="mail")
def mail(argument):
    for message in argument if isinstance(argument, list) else [argument]:
        handled.append(len(message.body))

process = Process("mail")
pace = process.turn._turns.claimer.pace
pace.each, pace.rough = 1e-6, False
before = peak()
while process.worker.step() == 0.0:
    pace.each = 1e-6
assert any(len(delivery.offsets) >= 500 for delivery in Delivery.objects.all())
print("handled", len(handled), "grown by", peak() - before)
"""

# Sends all once more.
COLUMNS = "partition_id, due_at, `key`, tag, headers, body, body_type, size, producer, created_at"
DOUBLE = f"INSERT INTO ems_msg ({COLUMNS}) SELECT {COLUMNS} FROM ems_msg"

SMALL_THINGS = [{"id": n} for n in range(MIB // 12)]  # as JSON 1 MiB, decoded more than 10


def consumed(spawn: Spawn, action: str = "pass") -> tuple[int, int]:
    """Let another process consume all; return how many messages, and by how much it has grown."""
    line = spawn(CONSUMER.replace("{action}", action)).expect("handled")
    _handled, number, *_words, grown = line.split()
    return int(number), int(grown)


@pytest.mark.exhaustive
def test_headers_count_like_bodies(spawn: Spawn) -> None:
    for _ in range(10):
        send_many([Outgoing("orders", {}, headers={"scan": "x" * MIB}) for _ in range(10)])
    sequence("default")
    number, grown = consumed(spawn)
    assert number == 100
    assert grown < BOUND


@pytest.mark.exhaustive
def test_headers_are_decoded_one_message_at_a_time(spawn: Spawn) -> None:
    headers = {f"{n:06d}": "" for n in range(MIB // 14)}
    send_many([Outgoing("orders", {}, headers=headers) for _ in range(15)])
    sequence("default")
    number, grown = consumed(spawn)
    assert number == 15
    assert grown < BOUND


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ["pass", "raise Retry(delay=3600)"])
def test_a_message_that_is_handled_is_let_go(spawn: Spawn, action: str) -> None:
    send_many([Outgoing("orders", SMALL_THINGS) for _ in range(15)])
    sequence("default")
    number, grown = consumed(spawn, action)
    assert number == 15
    assert grown < BOUND


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", [None, 50])
def test_a_claim_of_many_batches_is_not_read_at_once(spawn: Spawn, batch: int | None) -> None:
    """Of 64 KB each, a thousand messages are 64 MB; a call with fifty of them has 3 MB."""
    code = LARGE.replace('group="mail"', f'group="mail", threads=1, batch={batch}')
    send("orders", Random(1).randbytes(65_000))  # noqa: S311 - it does not shrink when stored
    for _ in range(11):
        with connection.cursor() as cursor:
            cursor.execute(DOUBLE)
    sequence("default")
    _handled, number, *_words, grown = spawn(code).expect("handled").split()
    assert int(number) == 2048
    assert int(grown) < 32 * MIB
