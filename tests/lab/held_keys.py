"""Measures what a key that fails for ever costs the other keys, and how fast a key catches up.

``python -m tests.lab.held_keys [--seconds 60] [--rate 20] [--server mysql|mariadb]`` needs a server
(EMS_TEST_MYSQL_URL). Messages of 50 keys are sent at a rate to two topics with one partition each,
whose groups, in one process, have the same handler of a millisecond. In one of them the messages of
one key fail the whole time; then they are handled. Both groups meet the same moments of the
machine. Printed are the times from the send to the end of the call, of the other 49 keys.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.lab.benchmarks import server
from tests.lab.benchmarks.compare import MIGRATE
from tests.lab.benchmarks.contender import Contender
from tests.processes import ROOT, wait_for

KEYS = 50
CONSUMER = """
import os, sys, time
from django.core.management import execute_from_command_line
from streams import consumer

calls = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
mended = sys.argv[2]

def handle(message):
    if (message.topic, message.key) == ("held", "k0") and not os.path.exists(mended):
        raise OSError("away")
    time.sleep(0.001)
    now = time.time()
    text = f"{message.topic} {message.key} {message.offset} {now - message.body} {now}\\n"
    os.write(calls, text.encode())

for topic in ("calm", "held"):
    consumer(topic, group="work", ordered="key", max_retries=10**6)(handle)
execute_from_command_line(["manage.py", "ems_consume", "--start", "earliest"])
"""
PRODUCER = f"""
import sys, time
from streams import send

seconds, rate = float(sys.argv[1]), float(sys.argv[2])
begun, number = time.time(), 0
while number < seconds * rate:
    time.sleep(max(0, begun + number / rate - time.time()))
    for topic in ("calm", "held") if number % 2 else ("held", "calm"):
        send(topic, time.time(), key=f"k{{number % {KEYS}}}")
    number += 1
print("sent", number, flush=True)
"""


def run(contender: Contender, folder: Path, seconds: float, rate: float) -> dict[str, float]:
    calls, mended = folder / "calls", folder / "mended"
    calls.touch()
    spawn = contender.spawn(STATE_DIR=str(folder / "state"), RETRY_DELAYS=[0.5])

    def done(topic: str) -> list[list[str]]:
        lines = [line.split() for line in calls.read_text().splitlines()]
        return [line for line in lines if line[0] == topic]

    try:
        consumer = spawn(CONSUMER, calls, mended)
        consumer.expect("database connections")
        sent = int(spawn(PRODUCER, seconds, rate).succeed(seconds * 10).split()[-1])
        failing = -(-sent // KEYS)
        wait_for(lambda: len(done("calm")) == sent, "the calm group", 120)
        wait_for(lambda: len(done("held")) == sent - failing, "the other keys", 120)
        found: dict[str, float] = {}
        for topic in ("calm", "held"):
            took = [float(line[3]) * 1e3 for line in done(topic) if line[1] != "k0"]
            cuts = statistics.quantiles(took, n=100, method="inclusive")
            found |= {f"{topic} p50, ms": cuts[49], f"{topic} p99, ms": cuts[98]}
        mended.touch()
        wait_for(lambda: len(done("held")) == sent, "the held key", 120)
        ends = [line for line in done("held") if line[1] == "k0"]
        assert [int(line[2]) for line in ends] == sorted(int(line[2]) for line in ends)
        found["parked a second"] = (len(ends) - 1) / (float(ends[-1][4]) - float(ends[0][4]))
        consumer.terminate()
        consumer.wait()
        return found
    finally:
        spawn.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.held_keys")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    server.choose(options.server)
    contender = Contender(ROOT, f"{server.name()}_held")
    with server.created(contender.database), tempfile.TemporaryDirectory() as folder:
        spawn = contender.spawn()
        spawn(MIGRATE).succeed()
        spawn.close()
        found = run(contender, Path(folder), options.seconds, options.rate)
    for name, value in found.items():
        print(f"{name:20} {value:>10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
