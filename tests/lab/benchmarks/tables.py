"""The tables of the pages, made from the kept figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tests.lab.benchmarks.charts import SPEEDS, rows, without_unit
from tests.lab.benchmarks.figures import Value, number
from tests.lab.benchmarks.kept import kept

NOT_MEASURED = "*Not measured yet.*"
# A load average above it at the start: something else ran, or the section before had just ended.
IDLE = 0.5
BUSY = " (the machine was not idle: compare figures of one run only)"
PEERS = {
    "durable": "durable",
    "in_transaction": "in the caller's transaction",
    "send_1": "sent/s, 1 process",
    "send_8": "8 processes",
    "handle_one": "handled/s, one by one",
    "handle_batch": "in batches",
    "latency_p50_ms": "p50, ms",
    "latency_p99_ms": "p99, ms",
    "cpu_us": "CPU, µs",
}
KILLS = {
    "killed_sent": "sent",
    "lost": "lost",
    "doubled": "handled twice",
    "seconds_to_finish": "s until the last",
}

# The runs of the first EMS, in full: 150,000 messages, 200,000 records.
SCENARIOS = ("consistency", "kill", "redis", "truncate")

# Of failovers: what is added up, and what is a time.
COUNTED = {
    "lost": "lost",
    "unhandled": "not handled",
    "reused": "offsets given twice",
    "twice": "handled again",
    "unknown": "unknown",
}
LONGEST = ("no send, median, s", "longest, s", "rewound log noticed after, s")


def speeds(*sections: str) -> str:
    found = [row for section in sections for row in rows(section)]
    lines = []
    for row in found:
        told = "–"
        if row["target"] is not None and row["ratio"] is not None:
            told = _reached(row["ratio"] >= row["target"])
        figures = [row[key] for key in ("ours", "raw", "ratio", "target")]
        lines.append([row["name"], *figures, told])
    return markdown(["", "ours", "raw", "ratio", "target", ""], lines)


def reading() -> str:
    keys = ("messages/s", "Spark, µs", "server, µs", "both, µs")
    return markdown(
        ["", *keys], [[row["name"], *(row[key] for key in keys)] for row in rows("reading")]
    )


def resident() -> str:
    head = ["", "processor time, s"]
    return markdown(head, [[row["name"], row["median"]] for row in rows("resident")])


def costs() -> str:
    keys = ("statements", "flushes", "client CPU, µs", "server CPU, µs")
    head = ["", "statements / 100", "log flushes / 100", "client CPU, µs each", "server CPU, µs"]
    lines = [[without_unit(row["name"]), *(row[key] for key in keys)] for row in rows("consume")]
    return markdown(head, lines)


def waits() -> str:
    lines = [
        [row["name"], row["ms"], row["limit, ms"], _reached(row["ms"] <= row["limit, ms"])]
        for row in rows("latency")
    ]
    return markdown(["", "ms", "target", ""], lines)


def growth() -> str:
    """One table for each axis."""
    found = rows("growth")
    parts = []
    for axis in dict.fromkeys(row["axis"] for row in found):
        of_axis = [row for row in found if row["axis"] == axis]
        small, large = (f"{of_axis[0][key]:,}" for key in ("small", "large"))
        head = [f"{axis}: {small} → {large}", "reads", "", "statements", ""]
        keys = ("reads before", "reads", "statements before", "statements")
        parts.append(
            markdown(head, [[row["unit"], *(row[key] for key in keys)] for row in of_axis])
        )
    return "\n\n".join(parts) or NOT_MEASURED


def peers() -> str:
    return _of_peers(PEERS)


def kills() -> str:
    return _of_peers(KILLS)


def missing_peers() -> str:
    found = kept("peers").get("not measured", {})
    return "\n".join(f"- {name} was not measured: {why}" for name, why in found.items()) or (
        "None was left out."
    )


def sizes() -> str:
    keys = ("messages", "sent/s", "MB/s", "send p50, ms", "send p99, ms")
    cost = ("client CPU, µs", "server CPU, µs", "lock waits", "missing", "repeated")
    found = [[row[key] for key in ("size", "writers", *keys, *cost)] for row in rows("sizes")]
    return markdown(["size", "writers", *keys, *cost], found)


def handling() -> str:
    keys = ("messages", "handled/s", "MB/s", "client CPU, µs", "server CPU, µs")
    found = [[row["name"], *(row[key] for key in keys)] for row in rows("handling")]
    return markdown(["size", *keys], found)


def rates() -> str:
    record = {row["name"]: row for row in rows("first-ems")}
    keys = ("CPU, %", "clients, %", "server, %")
    waits = ("send to handler p50, ms", "send to handler p99, ms")
    lines = []
    for row in rows("rate"):
        of_first = record.get(row["name"])
        told = f"{of_first['low, %']:g}–{of_first['high, %']:g}" if of_first else None
        lines.append([row["name"], *(row[key] for key in keys), told, *(row[key] for key in waits)])
    return markdown(["sent", *keys, "the first EMS, %", *waits], lines)


def prepared(*keys: str) -> str:
    """Return the rows of the prepared messages that have these columns."""
    found = [row for row in rows("two_phase") if keys[0] in row]
    return markdown(["", *keys], [[row["name"], *(row[key] for key in keys)] for row in found])


def sustained() -> str:
    """One column for each long run: it has many values."""
    found = [(server, row) for server, row in _sustained() if "seconds" in row]
    head = ["", *(f"{server}, {row['name']}" for server, row in found)]
    keys = [key for key in found[0][1] if key not in ("name", "seconds")] if found else []
    return markdown(head, [[key, *(row[key] for _server, row in found)] for key in keys])


def tries() -> str:
    keys = ("sent/s", "handled/s", "lag max", "holds")
    found = [(server, row) for server, row in _sustained() if "seconds" not in row]
    lines = [[f"{server}, {row['name']}", *(row[key] for key in keys)] for server, row in found]
    return markdown(["", *keys], lines)


def _sustained() -> list[tuple[str, dict[str, Any]]]:
    servers = {"MySQL": "sustained-mysql", "MariaDB": "sustained-mariadb"}
    return [(server, row) for server, section in servers.items() for row in rows(section)]


def pages(server: str) -> str:
    keys = ("statements", "rows read", "client CPU, ms", "server CPU, ms", "CPU, ms", "limit, ms")
    times = ("best, ms", "median, ms")
    found = [
        [row["name"], *(row[key] for key in (*keys, *times))] for row in rows(f"pages-{server}")
    ]
    return markdown(["", *keys, *times], found)


def failovers() -> str:
    """One row for each kind of cluster and fault, over all that was played of it."""
    found: list[dict[str, Any]] = kept("failover").get("rows", [])
    kinds = dict.fromkeys((row["cluster"], row["fault"], row["way"]) for row in found)
    head = ["cluster", "fault", "played", "acknowledged", *COUNTED.values(), *LONGEST, "broken"]
    lines = []
    for kind in kinds:
        played = [row for row in found if (row["cluster"], row["fault"], row["way"]) == kind]
        cluster, fault, way = kind
        noticed = [row["rewound"] for row in played if row["rewound"] is not None]
        lines.append(
            [
                *(cluster, f"{fault}, {way}" if way else fault, len(played)),
                sum(row["acked"] for row in played),
                *(sum(row[name] for row in played) for name in COUNTED),
                statistics.median(row["no_send"] for row in played),
                max(row["no_send"] for row in played),
                max(noticed, default=None),
                sum(bool(row["broken"]) for row in played),
            ]
        )
    return markdown(head, lines)


def scenarios() -> str:
    """One row for each group of each scenario that was played in full."""
    keys = ("sent", "recorded", "missing", "duplicates", "order_breaks", "dead", "processes")
    head = ["scenario", "group", *(key.replace("_", " ") for key in keys)]
    found = [(name, row) for name in SCENARIOS for row in rows(f"scenario-{name}")]
    lines = [[name, row["group"], *(row[key] for key in keys)] for name, row in found]
    return markdown(head, sorted(lines))


def scenario_runs() -> str:
    keys = ("seconds", "records/s", "longest gap, s")
    found = [(name, one) for name in SCENARIOS if (one := kept(f"scenario-{name}"))]
    lines = [[name, *(one[key] for key in keys), len(one["broken"])] for name, one in found]
    return markdown(["scenario", *keys, "promises broken"], lines)


def units() -> str:
    # The planner writes its tables with this module.
    from tests.lab.benchmarks.plan import unit_costs

    return unit_costs()


def together() -> str:
    from tests.lab.benchmarks import plan

    return plan.together()


def plan(batch: int) -> str:
    from streams.sizing.plan import Wish
    from tests.lab.benchmarks.plan import table

    return table(Wish(rate=1e6, batch=batch))


def measured_costs() -> str:
    """Say on what the costs of the package were measured."""
    from streams.sizing.costs import costs

    return _said(costs().measured)


def over_http() -> str:
    lines: list[list[Value | bool]] = []
    for row in rows("http"):
        value, limit = row["value"], row["limit"]
        most = not row["name"].endswith("a second")
        told = "–" if limit is None else _reached(value <= limit if most else value >= limit)
        lines.append([row["name"], value, limit, told])
    return markdown(["", "measured", "target", ""], lines)


def _said(of: dict[str, Any]) -> str:
    servers = f"{of['server']}, " if "server" in of else ""
    return (
        f"{servers}Python {of['python']}, Django {of['Django']}, mysqlclient"
        f" {of['mysqlclient']}, {of['cores']} cores ({of['processor']}), load at the start"
        f" {of['load']}{BUSY if of['load'] > IDLE else ''}, {of['date']}, commit"
        f" {of['commit']}"
    )


def measured(*sections: str) -> str:
    """Say on what the sections were measured, once for all that agree."""
    said: dict[str, list[str]] = {}
    for section in sections:
        if of := kept(section).get("measured"):
            said.setdefault(_said(of), []).append(section)
    return "\n".join(f"- {', '.join(names)}: {text}." for text, names in said.items()) or (
        NOT_MEASURED
    )


def markdown(head: Sequence[str], lines: Sequence[Sequence[Value | bool]]) -> str:
    if not lines:
        return NOT_MEASURED
    rule = "|".join(["---", *["--:"] * (len(head) - 1)])
    told = [" | ".join(_cell(value) for value in line) for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {line} |" for line in told)])


def _cell(value: Value | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value)


def _reached(yes: bool) -> str:
    return "reached" if yes else "**not reached**"


def _of_peers(columns: dict[str, str]) -> str:
    found: list[dict[str, Any]] = kept("peers").get("peers", [])
    return markdown(
        ["", *columns.values()], [[one["peer"], *(one[key] for key in columns)] for one in found]
    )


TABLES: dict[str, Callable[[], str]] = {
    "speeds": lambda: speeds(*SPEEDS),
    "costs": costs,
    "waits": waits,
    "growth": growth,
    "peers": peers,
    "kills": kills,
    "missing-peers": missing_peers,
    "sizes": sizes,
    "handling": handling,
    "rates": rates,
    "pages-mysql": lambda: pages("mysql"),
    "pages-mariadb": lambda: pages("mariadb"),
    "http": over_http,
    "measured-http": lambda: measured("http"),
    "prepared-speeds": lambda: prepared("ours", "raw", "ratio"),
    "prepared-rates": lambda: prepared(
        *("reached/s", "prepare p50, ms", "prepare p99, ms", "commit p50, ms", "commit p99, ms"),
        *("client CPU, µs", "server CPU, µs"),
    ),
    "prepared-checks": lambda: prepared("checks/s", "messages"),
    "measured-two-phase": lambda: measured("two_phase"),
    "sustained": sustained,
    "sustained-tries": tries,
    "measured-sustained": lambda: measured("sustained-mysql", "sustained-mariadb"),
    "measured-pages": lambda: measured("pages-mysql", "pages-mariadb"),
    "spark-source": lambda: speeds("source"),
    "spark-reading": reading,
    "spark-lake": lambda: speeds("lake"),
    "spark-rollups": lambda: speeds("rollups"),
    "spark-resident": resident,
    "spark-sink": lambda: speeds("sink"),
    "units": units,
    "failovers": failovers,
    "scenarios": scenarios,
    "scenario-runs": scenario_runs,
    "measured-scenarios": lambda: measured(*(f"scenario-{name}" for name in SCENARIOS)),
    "measured-failover": lambda: measured("failover"),
    "plan-batch": lambda: plan(100),
    "plan-single": lambda: plan(1),
    "plan-together": together,
    "measured-plan": measured_costs,
    "measured-spark": lambda: measured("source", "reading", "lake", "rollups", "resident", "sink"),
    "measured-core": lambda: measured(*SPEEDS, "latency", "growth"),
    "measured-peers": lambda: measured("peers"),
    "measured-stress": lambda: measured("sizes", "handling", "rate"),
}
