"""Measure: ``python -m tests.benchmarks [--json FILE] [--only NAME] [--quick] [--server mariadb]``.

docs/about/benchmarks/core.md says what is compared and how. Started by ``make bench``, which brings
the servers. Exit status 1 if a log that grows makes something slower; speeds are reported only,
since a busy machine would fail them.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks import server
from tests.benchmarks.figures import Figure, table, write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--only", choices=sorted(BENCHMARKS), action="append", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small rounds: does it run at all?")
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    try:
        with server.database(options.server):
            admin = server.connect()
            ((version,),) = server.execute(admin, "SELECT VERSION()")
            admin.close()
            print(f"{options.server} {version}, Python {platform.python_version()},", end=" ")
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
            figures: list[Figure] = []
            for name in options.only or BENCHMARKS:
                started = time.monotonic()
                figures += BENCHMARKS[name](options.quick)
                print(f"  {name}: {time.monotonic() - started:.0f} s", flush=True)
    except server.Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    print(table(figures))
    if options.json:
        write_json(figures, options.json)
    grown = [f for f in figures if f.name.startswith("reads of") and not f.reached]
    return 1 if grown else 0


def _send(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.sending import send_figures

    return send_figures(quick=quick)


def _send_many(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.sending import send_many_figures

    return send_many_figures(quick=quick)


def _sequence(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.sequencing import figures

    return figures(quick=quick)


def _consume(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.consuming import figures

    return figures(quick=quick)


def _growth(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.growth import figures

    return figures(quick=quick)


def _latency(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks import latency

    return latency.figures(quick=quick)


def _spark(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.spark import figures

    return figures(quick=quick)


def _rollups(quick: bool) -> Iterator[Figure]:
    from tests.benchmarks.rollups import figures

    return figures(quick=quick)


# The sequencer's empties the table of messages; growth needs a log that nothing else is in.
BENCHMARKS: dict[str, Callable[[bool], Iterator[Figure]]] = {
    "send": _send,
    "send_many": _send_many,
    "sequence": _sequence,
    "consume": _consume,
    "latency": _latency,
    "growth": _growth,
    "spark": _spark,
    "rollups": _rollups,
}

if __name__ == "__main__":
    sys.exit(main())
