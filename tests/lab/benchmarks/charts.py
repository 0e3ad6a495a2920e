"""The pictures of the pages: which kept figures each one shows."""

from __future__ import annotations

from typing import Any

from tests.lab.benchmarks.kept import kept
from tests.lab.benchmarks.svg import Bars, Lines

Chart = Bars | Lines
SPEEDS = ("send", "send_many", "sequence", "consume")
EMS = "EMS on MySQL"


def rows(section: str) -> list[dict[str, Any]]:
    """Return the rows of a section: their name and all values."""
    return [{"name": row["name"], **row["values"]} for row in kept(section).get("rows", [])]


def charts() -> dict[str, Chart]:
    """Return the pictures by the name of their file; one without figures says so."""
    return {**_core(), **_peers(), **_stress()}


def _core() -> dict[str, Chart]:
    speeds = [row for section in SPEEDS for row in rows(section)]
    grown = [row for row in rows("growth") if row["axis"] == "messages"]
    sizes = [f"{grown[0][key]:,} messages" for key in ("small", "large")] if grown else ["", ""]
    return {
        "core-speed": Bars(
            "How fast the core is",
            "messages a second",
            ("EMS", "its SQL alone"),
            [(without_unit(row["name"]), (row["ours"], row["raw"])) for row in speeds],
        ),
        "core-cost": Bars(
            "What 100 messages cost",
            "while a group is far behind",
            ("statements", "log flushes"),
            [
                (without_unit(row["name"]), (row["statements"], row["flushes"]))
                for row in rows("consume")
            ],
        ),
        "core-growth": Bars(
            "What a unit of work reads",
            "index entries and rows",
            sizes,
            [(row["unit"], (row["reads before"], row["reads"])) for row in grown],
        ),
    }


def _peers() -> dict[str, Chart]:
    peers = kept("peers").get("peers", [])

    def bars(title: str, unit: str, *columns: tuple[str, str]) -> Bars:
        found = [(one["peer"], [one[key] for _title, key in columns]) for one in peers]
        ours = EMS if len(columns) == 1 else ""
        return Bars(title, unit, [title for title, _key in columns], found, ours)

    sent = (("1 process", "send_1"), ("8 processes", "send_8"))
    handled = (("one by one", "handle_one"), ("in batches", "handle_batch"))
    waits = (("half within", "latency_p50_ms"), ("99 of 100 within", "latency_p99_ms"))
    killed = (("lost", "lost"), ("handled twice", "doubled"))
    return {
        "peers-send": bars("Sending", "messages of 1 KB a second", *sent),
        "peers-handle": bars("Handling", "messages a second, 2 workers", *handled),
        "peers-latency": bars("From send to handler", "ms, at 200 messages a second", *waits),
        "peers-cpu": bars("Processor time", "µs a message, sent and handled", ("CPU", "cpu_us")),
        "peers-kills": bars("After killed workers", "messages", *killed),
    }


def _stress() -> dict[str, Chart]:
    sizes, rates = rows("sizes"), rows("rate")
    writers = list(dict.fromkeys(row["writers"] for row in sizes))
    series: dict[str, list[float | None]] = {row["size"]: [None] * len(writers) for row in sizes}
    for row in sizes:
        series[row["size"]][writers.index(row["writers"])] = row["sent/s"]
    record = {row["name"]: row for row in rows("first-ems")}
    middle = [
        (of["low, %"] + of["high, %"]) / 2 if (of := record.get(row["name"])) else None
        for row in rates
    ]
    return {
        "stress-sizes": Lines(
            "Sending, by size and writers",
            "messages a second, by processes that send",
            [str(number) for number in writers],
            list(series.items()),
            log=True,
        ),
        "stress-rate": Lines(
            "What a steady rate costs",
            "percent of the processors, by messages a second",
            [str(row["rate"]) for row in rates],
            [("EMS", [row["CPU, %"] for row in rates]), ("the first EMS, 4 cores", middle)],
        ),
    }


def without_unit(name: str) -> str:
    return name.removesuffix(", messages/s")
