"""Measures what a key that fails for ever costs the other keys, and how fast a key catches up.

``python -m tests.lab.held_keys [--seconds 30] [--rate 200] [--server mysql|mariadb]`` needs a
server (EMS_TEST_MYSQL_URL). Messages of 50 keys are sent at a rate to a topic with one partition.
Their handler takes a millisecond. In the second of two runs the messages of one key fail, the whole
time; then they are handled. Printed are the times from the send to the end of the call, of other
keys.
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

CONSUMER = """
import os, sys, time
from django.core.management import execute_from_command_line
from streams import consumer

calls = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
mended = sys.argv[2]

@consumer("held", group="work", ordered="key", max_retries=10**6)
def handle(message):
    if message.key == "k0" and not os.path.exists(mended):
        raise OSError("away")
    time.sleep(0.001)
    now = time.time()
    os.write(calls, f"{message.key} {message.offset} {now - message.body} {now}\\n".encode())

execute_from_command_line(["manage.py", "ems_consume", "--start", "earliest"])
"""
PRODUCER = """
import sys, time
from streams import send

seconds, rate = float(sys.argv[1]), float(sys.argv[2])
begun, number = time.time(), 0
while number < seconds * rate:
    time.sleep(max(0, begun + number / rate - time.time()))
    send("held", time.time(), key=f"k{number % 50}")
    number += 1
print("sent", number, flush=True)
"""


def run(contender: Contender, folder: Path, seconds: float, rate: float, *, fails: bool) -> dict:
    """Return the figures of one run, on tables of its own."""
    calls, mended = folder / "calls", folder / "mended"
    calls.write_text("")
    if not fails:
        mended.touch()
    spawn = contender.spawn(STATE_DIR=str(folder / "state"), RETRY_DELAYS=[0.5])
    try:
        consumer = spawn(CONSUMER, calls, mended)
        consumer.expect("database connections")
        sent = int(spawn(PRODUCER, seconds, rate).succeed(seconds * 4).split()[-1])
        others = sent - -(-sent // 50)

        def lines() -> list[list[str]]:
            return [line.split() for line in calls.read_text().splitlines()]

        def done(least: int) -> bool:
            return len(lines()) >= least

        wait_for(lambda: done(others), "the other keys", 120)
        took = [float(line[2]) for line in lines() if line[0] != "k0"]
        cuts = statistics.quantiles(took, n=100, method="inclusive")
        found = {"p50 ms": cuts[49] * 1e3, "p99 ms": cuts[98] * 1e3}
        if fails:
            mended.touch()
            wait_for(lambda: done(sent), "the held key", 120)
            ends = [float(line[3]) for line in lines() if line[0] == "k0"]
            offsets = [int(line[1]) for line in lines() if line[0] == "k0"]
            assert offsets == sorted(offsets)
            found["parked a second"] = (len(ends) - 1) / (ends[-1] - ends[0])
        consumer.terminate()
        consumer.wait()
        return found
    finally:
        spawn.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.held_keys")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    server.choose(options.server)
    for fails in (False, True):
        contender = Contender(ROOT, f"{server.name()}_held_{int(fails)}")
        with server.created(contender.database), tempfile.TemporaryDirectory() as folder:
            spawn = contender.spawn()
            spawn(MIGRATE).succeed()
            spawn.close()
            found = run(contender, Path(folder), options.seconds, options.rate, fails=fails)
        print(
            "one key fails" if fails else "none fails   ",
            {k: round(v, 1) for k, v in found.items()},
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
