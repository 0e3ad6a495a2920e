"""The processes of a sustained load: senders at a rate, a consumer of two groups, and a purge."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.lab.benchmarks.contender import Contender, processor_seconds
from tests.processes import PATIENCE_SECONDS, Child

TOPIC = "bench-sustained"
GROUPS = ("bench.one", "bench.two")
SENDERS = 4
SIZE = 1024  # bytes of a body
START_SECONDS = 0.5  # until the first message is due, once all processes are there

# Sends single messages at a rate, whatever becomes of them, from the instant on that the file says.
# A body begins with the instant at which it was due: who sends late because the server is slow has
# waited, too.
SENDER = f"""
import random, string, sys, time
from pathlib import Path
from django.db import connection
from streams import send
number, rate, seconds, start = int(sys.argv[1]), *map(float, sys.argv[2:4]), Path(sys.argv[4])
filling = "".join(random.choices(string.ascii_letters, k={SIZE - 20}))
connection.ensure_connection()
print("ready", flush=True)
while not start.exists():
    time.sleep(0.01)
began, at = float(start.read_text()), number
while max(due := began + at / rate, time.time()) < began + seconds:
    time.sleep(max(0.0, due - time.time()))
    send("{TOPIC}", f"{{due:<20.6f}}{{filling}}")
    at += {SENDERS}
print("sent", flush=True)
time.sleep({PATIENCE_SECONDS})  # its processor time is read meanwhile
"""

# Handles one message a call, at the defaults; tells at its end what it has handled.
CONSUMER = f"""
import json, time
from array import array
from statistics import quantiles
from django.core.management import call_command
from streams import consumer

def register(group):
    waits = array("d")
    @consumer("{TOPIC}", group=group)
    def take(message):
        waits.append(time.time() - float(message.body[:20]))
    return waits

found = {{group: register(group) for group in {GROUPS}}}
try:
    call_command("ems_consume", "--start", "earliest")
finally:
    every = [1000 * one for waits in found.values() for one in waits]
    cuts = quantiles([*every, *every[:1]], n=100, method="inclusive") if every else []
    print("handled", json.dumps({{
        "calls": [len(waits) for waits in found.values()],
        "p50": cuts[49] if cuts else None, "p99": cuts[98] if cuts else None,
    }}), flush=True)
"""

# The topic keeps what is not consumed: what both groups have finished is deleted at once.
PURGE = f"""
import time
from streams.models import Topic
from streams.retain.purge import Purge
topic = Topic.objects.get(name="{TOPIC}")
print("purging", flush=True)
while True:
    Purge("default").run(topic)
    time.sleep(1)
"""


@dataclass(frozen=True)
class Handled:
    """What the consumer has counted: the calls of each group, and send to handler in ms."""

    calls: list[int]
    p50: float | None
    p99: float | None


class Traffic:
    """A load of ``rate`` messages a second for ``seconds``; ``close`` ends its processes."""

    def __init__(self, contender: Contender, rate: float, seconds: float) -> None:
        self._spawn = contender.spawn(REDIS=None, POLL_SECONDS=1.0)
        self._folder = TemporaryDirectory()
        try:
            self._begin(rate, seconds)
        except BaseException:
            self.close()
            raise

    def _begin(self, rate: float, seconds: float) -> None:
        start = Path(self._folder.name) / "start"
        self._consumer, self._purge = self._spawn(CONSUMER), self._spawn(PURGE)
        words = (rate, seconds, start)
        self._senders = [self._spawn(SENDER, number, *words) for number in range(SENDERS)]
        self._consumer.expect("database connections")
        for child, said in ((self._purge, "purging"), *((one, "ready") for one in self._senders)):
            child.expect(said)
        children = self._consumer, self._purge, *self._senders
        self._used = {child: processor_seconds(child.pid) for child in children}
        self.began = time.time() + START_SECONDS
        draft = start.with_suffix(".draft")
        draft.write_text(str(self.began))
        draft.rename(start)

    def stop_senders(self) -> float:
        """Wait until all has been sent; return the processor time of the senders."""
        for one in self._senders:
            one.expect("sent")
        return self.kill_senders()

    def kill_senders(self) -> float:
        """End the senders, whatever is left to send; return their processor time."""
        used = sum(map(self._processor_seconds, self._senders))
        for one in self._senders:
            one.kill()
        return used

    def stop(self) -> tuple[Handled, float, float]:
        """Stop the consumer; return what it says, and the processor time of it and of the purge."""
        consumer, purge = map(self._processor_seconds, (self._consumer, self._purge))
        return self._told(self._consumer), consumer, purge

    def _processor_seconds(self, child: Child) -> float:
        """Return the processor time of a child since the start of the load."""
        return processor_seconds(child.pid) - self._used[child]

    @staticmethod
    def _told(consumer: Child) -> Handled:
        consumer.terminate()
        said: dict[str, Any] = json.loads(consumer.expect("handled {").partition("handled ")[2])
        return Handled(**said)

    def close(self) -> None:
        self._spawn.close()
        self._folder.cleanup()
