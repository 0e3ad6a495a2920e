"""Measure: ``python -m tests.lab.benchmarks [SECTION …] [--quick] [--keep] [--server mariadb]``.

Started by ``make bench``, which brings the servers. docs/about/benchmarks/core.md says what is
compared and how. The exit status is 1 if something that is counted has grown, or is beyond its
bound: rows read, statements, flushes. Speeds are reported only: a busy machine would fail them.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module

from tests.lab.benchmarks import kept, server
from tests.lab.benchmarks.figures import Options, Row, table

# Section → module, function. The sequencer's empties the table of messages; growth comes last: it
# needs tables that nothing else is in.
SECTIONS = {
    "send": ("sending", "send_figures"),
    "send_many": ("sending", "send_many_figures"),
    "sequence": ("sequencing", "figures"),
    "consume": ("consume.lines", "figures"),
    "latency": ("latency", "figures"),
    "units": ("units", "figures"),
    "growth": ("growth.axes", "figures"),
    "sizes": ("stress", "sizes"),
    "handling": ("stress", "handling"),
    "rate": ("stress", "rates"),
    "source": ("spark", "figures"),
    "reading": ("reading", "figures"),
    "lake": ("lake", "figures"),
    "rollups": ("rollups", "figures"),
    "resident": ("resident", "figures"),
    "sink": ("sink", "figures"),
    "pages": ("pages.opening", "figures"),
    "http": ("http", "figures"),
    "two_phase": ("two_phase", "figures"),
    "sustained": ("sustained.rate", "figures"),
}
CORE, STRESS, SPARK = [*SECTIONS][:7], [*SECTIONS][7:10], [*SECTIONS][10:16]
SETS = {"core": CORE, "stress": STRESS, "spark": SPARK}
# Measured on each server; the figures of the others are those of one.
ON_EACH = {"pages", "sustained"}


def main() -> int:
    options = _arguments()
    sections = [name for word in options.sections for name in SETS.get(word, [word])]
    chosen = Options(
        options.quick, options.messages, options.hold, options.seconds, options.snapshot
    )
    print(estimate(sections, options.quick), flush=True)
    failed: list[str] = []
    try:
        with server.database(options.server):
            about = _about(options.server)
            print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
            for name in sections:
                label = f"{name}-{options.server}" if name in ON_EACH else name
                rows = _run(name, label, chosen, about if options.keep else None)
                failed += [f"{row.name}: {row.failure}" for row in rows if row.failure]
    except server.Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.benchmarks")
    parser.add_argument(
        "sections",
        nargs="*",
        default=["core"],
        metavar="SECTION",
        help=f"{', '.join(SECTIONS)}; or {', '.join(SETS)} for several (core)",
    )
    parser.add_argument("--quick", action="store_true", help="small rounds: does it run at all?")
    parser.add_argument("--keep", action="store_true", help=f"write the figures to {kept.DATA}")
    parser.add_argument(
        "--messages",
        type=int,
        help="of the large log of growth (1,000,000), and of pages (5,000,000)",
    )
    parser.add_argument(
        "--hold",
        type=float,
        default=Options.hold,
        metavar="SECONDS",
        help="how long growth holds a snapshot and a transaction (%(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="how long sustained holds its rate (600), or the service of resident runs",
    )
    parser.add_argument(
        "--snapshot", action="store_true", help="sustained: once more beside an open snapshot"
    )
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    for word in options.sections:
        if word not in SECTIONS and word not in SETS:
            parser.error(f"there is no section {word}")
    if options.keep and options.quick:
        parser.error("figures of --quick are not kept")
    return options


def estimate(sections: list[str], quick: bool) -> str:
    """Say how long it will take: as long as the last time, here or elsewhere."""
    labels = {name: _label(name, quick) for name in sections}
    known = {name: seconds for name in sections if (seconds := kept.seconds_of(labels[name]))}
    unknown = [name for name in sections if name not in known]
    parts = [", ".join(sections)]
    if known:
        whose = kept.run_of(labels[name] for name in known)
        parts.append(f": about {sum(known.values()) / 60:.1f} minutes, {whose}")
    if unknown:
        parts.append(f" (nobody has timed {', '.join(unknown)})")
    return "".join(parts)


def _run(name: str, kept_as: str, options: Options, about: dict[str, object] | None) -> list[Row]:
    module, function = SECTIONS[name]
    figures: Callable[[Options], Iterator[Row]] = getattr(
        import_module(f"tests.lab.benchmarks.{module}"), function
    )
    started = time.monotonic()
    rows = []
    try:
        for row in figures(options):
            # What takes minutes says how far it is.
            print(f"  {row.name}: {row.values}", flush=True)
            rows.append(row)
    except Exception as error:  # noqa: BLE001 - the sections after it are measured all the same
        traceback.print_exc()
        # Nothing is kept: the pages go on showing what was measured as a whole before.
        why = f"not measured: {type(error).__name__}: {error}"
        print(f"\n{name}: {why}\n{table(rows)}", flush=True)
        return [*rows, Row(name, {}, why)]
    seconds = time.monotonic() - started
    kept.note_seconds(_label(name, options.quick), seconds)
    print(f"\n{name}: {seconds:.0f} s\n{table(rows)}", flush=True)
    if about is not None:
        found = {"seconds": round(seconds, 1), "rows": [asdict(row) for row in rows]}
        kept.keep(kept_as, found, **about)
    return rows


def _label(name: str, quick: bool) -> str:
    return f"{name} --quick" if quick else name


def _about(kind: str) -> dict[str, object]:
    plain = server.connect()
    ((version,),) = server.execute(plain, "SELECT VERSION()")
    plain.close()
    name = {"mysql": "MySQL", "mariadb": "MariaDB"}[kind]
    return {
        "server": f"{name} {version.partition('-')[0]}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
