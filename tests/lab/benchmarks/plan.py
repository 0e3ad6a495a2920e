"""Writes the page of the planner, whose model and costs are in the package: streams/sizing/.

``python -m tests.lab.benchmarks.plan`` takes what ``make bench`` has kept of SECTIONS, and writes
it to streams/sizing/costs.json. All of it must be of one machine and one server, since the parts
are compared with all of them together.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from streams.sizing import costs as package
from streams.sizing.plan import Wish, plan
from tests.lab.benchmarks.figures import Value, number
from tests.lab.benchmarks.kept import kept
from tests.lab.benchmarks.sending import A_CALL
from tests.lab.benchmarks.tables import markdown

CLIENT, SERVER = "client CPU, µs", "server CPU, µs"
SECTIONS = ("units", "consume", "sequence", "sustained-mysql")
SAME = ("processor", "cores", "server", "date")
# The parts by the beginnings of their rows.
PARTS = {
    "send": ("units", "send,"),
    "send_many": ("units", "send_many,"),
    "sequence": ("units", "sequence"),
    "purge": ("units", "purge"),
    "batch": ("consume", "consume, batch"),
    "one": ("consume", "consume, one-message"),
}


class NotMeasured(Exception):
    """Says which section of ``make bench`` has to run first."""


def collected() -> dict[str, Any]:
    """Return what costs.json is to be; raises NotMeasured."""
    about = [kept(section).get("measured", {}) for section in SECTIONS]
    if len({tuple(one.get(name) for name in SAME) for one in about}) > 1:
        raise NotMeasured(f"Measure these in one run, on one machine: {', '.join(SECTIONS)}")
    long = _row("sustained-mysql", "600 s")
    return {
        "measured": {"page": "docs/about/benchmarks/plan.md", **about[0]},
        "size": 1024,
        "a_call": A_CALL,
        "server": {name: _row(*place)[SERVER] for name, place in PARTS.items()},
        "client": {name: _row(*place)[CLIENT] for name, place in PARTS.items()},
        "sequencer": _row("sequence", "sequence")["ours"],
        "together": {
            "rate": long["rate"],
            "groups": 2,
            "server": long[SERVER],
            **{name: long[f"{name} CPU, µs"] for name in ("senders", "consumers", "purge")},
        },
    }


def _row(section: str, name: str) -> dict[str, Any]:
    for row in kept(section).get("rows", []):
        if row["name"].startswith(name):
            values: dict[str, Any] = row["values"]
            if None not in (values.get(SERVER, 0), values.get(CLIENT, 0)):
                return values
    raise NotMeasured(f'Run first: make bench ARGS="{section} --keep"')


def table(wish: Wish) -> str:
    """Return the plan in Markdown."""
    lines = [[line.what, number(line.value), line.known] for line in plan(wish)]
    head = f"{wish.rate:,.0f} messages/s of {wish.size:,} bytes, {wish.batch} a call"
    return markdown([head, "", "known by"], lines)


def unit_costs() -> str:
    """Return in Markdown what each part costs."""
    found = package.costs()
    names = {
        "send": "send, one by one",
        "send_many": f"send_many, {found.a_call} a call",
        "sequence": "sequence",
        "batch": "one group, handled in batches of 100",
        "one": "one group, handled one by one",
        "purge": "purge",
    }
    lines = [
        [text, getattr(found.client, name), getattr(found.server, name)]
        for name, text in names.items()
    ]
    return markdown(["", CLIENT, SERVER], lines)


def together() -> str:
    """Return in Markdown how many times the sum of the parts all at once cost."""
    found = package.costs()
    all_, parts = found.together, found.server
    alone = parts.send + parts.sequence + all_.groups * parts.one + parts.purge
    senders, consumers = all_.senders / found.sender_factor, all_.consumers / found.consumer_factor
    lines: list[list[Value]] = [
        ["server", alone, all_.server, found.server_factor],
        ["senders", senders, all_.senders, found.sender_factor],
        ["consumers", consumers, all_.consumers, found.consumer_factor],
    ]
    return markdown(["", "sum of the parts, µs", "all at once, µs", "times"], lines)


def main() -> int:
    try:
        found = collected()
    except NotMeasured as missing:
        print(missing, file=sys.stderr)
        return 1
    package.FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {package.FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
