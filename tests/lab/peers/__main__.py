"""Runs all peers one after the other, and prints a table: ``make peers`` (ARGS="--only ems,ox").

With ``--keep`` docs/about/benchmarks/peers.md shows the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.brokers import DurableRedis, RabbitMQ
from tests.lab.benchmarks import kept
from tests.lab.peers.measure import Contest, Figures, Peer, as_json
from tests.lab.peers.servers import PostgreSQL
from tests.packages import Programs, Unavailable
from tests.servers import MySQL, Redis, Server, ServerFailed

APPS = "tests.lab.peers.apps"
DJANGO = f"{APPS}.django_programs"
# All leases are 15 s, the default of EMS. procrastinate looks for stalled jobs once a minute.
PEERS = [
    Peer("EMS on MySQL", "mysql", DJANGO, True, True, True, {"PEER_APP": "ems"}),
    Peer("EMS tasks on MySQL", "mysql", DJANGO, True, True, env={"PEER_APP": "ems_tasks"}),
    Peer("django-tasks-db on MySQL", "mysql", DJANGO, True, True, env={"PEER_APP": "tasks_db"}),
    Peer("django-ox on MySQL", "mysql", DJANGO, True, True, env={"PEER_APP": "ox"}),
    Peer(
        "procrastinate on PostgreSQL",
        "postgresql",
        f"{APPS}.procrastinate_program",
        True,
        True,
        patience=150,
    ),
    Peer(
        "Celery on EMS",
        "mysql",
        f"{APPS}.celery_program",
        True,
        True,
        env={"PEER_APP": "celery"},
    ),
    Peer("Celery on RabbitMQ", "rabbitmq", f"{APPS}.celery_program", True, False),
    Peer("Celery on Redis", "redis", f"{APPS}.celery_program", False, False),
    Peer("dramatiq on Redis", "redis", f"{APPS}.dramatiq_program", False, False),
    Peer("huey on Redis", "redis", f"{APPS}.huey_program", False, False),
    Peer("Redis Streams", "redis", f"{APPS}.redis_streams_program", False, False, True),
    Peer(
        "Redis Streams, appendfsync always",
        "durable-redis",
        f"{APPS}.redis_streams_program",
        True,
        False,
        True,
    ),
]
SERVERS: dict[str, tuple[type[Server], str]] = {
    "mysql": (MySQL, "mysql"),
    "postgresql": (PostgreSQL, ""),
    "rabbitmq": (RabbitMQ, ""),
    "redis": (Redis, "redis"),
    "durable-redis": (DurableRedis, "redis"),
}
COLUMNS = {
    "send/s, 1 process": "send_1",
    "8 processes": "send_8",
    "handled/s, one by one": "handle_one",
    "in batches": "handle_batch",
    "p50 ms": "latency_p50_ms",
    "p99 ms": "latency_p99_ms",
    "CPU µs": "cpu_us",
    "lost": "lost",
    "doubled": "doubled",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make peers")
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--scale", type=float, default=1.0, help="how many messages (1.0)")
    parser.add_argument("--keep", action="store_true", help=f"write the figures to {kept.DATA}")
    options = parser.parse_args()
    if options.keep and options.only:
        parser.error("only figures of all peers are kept")
    wanted = [name for name in options.only.split(",") if name]
    found: list[Figures] = []
    missing: dict[str, str] = {}
    load, began = round(os.getloadavg()[0], 1), time.monotonic()
    if (last := kept.seconds_of("peers")) and not wanted:
        minutes, whose = last * options.scale / 60, kept.run_of(["peers"])
        print(f"about {minutes:.0f} minutes, {whose}", file=sys.stderr)
    for peer in PEERS:
        if wanted and not any(name.lower() in peer.name.lower() for name in wanted):
            continue
        started = time.monotonic()
        try:
            found.append(_measure(peer, options.scale))
        except (Unavailable, ServerFailed, AssertionError) as reason:
            missing[peer.name] = str(reason)
        except Exception as error:  # noqa: BLE001 - those after it are measured all the same
            traceback.print_exc()
            missing[peer.name] = f"{type(error).__name__}: {error}"
        print(f"{peer.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    seconds = round(time.monotonic() - began, 1)
    print(_table(found))
    for name, why in missing.items():
        print(f"\n*** {name} was not measured: {why} ***")
    if not wanted and options.scale == 1:
        kept.note_seconds("peers", seconds)
    if options.keep:
        rows = {"peers": [as_json(one) for one in found], "not measured": missing}
        kept.keep("peers", {"seconds": seconds, **rows}, load=load, scale=options.scale)
    return 0 if found else 1


def _measure(peer: Peer, scale: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="ems-peer-") as folder, contextlib.ExitStack() as stack:
        server = stack.enter_context(_running(peer.server))
        env = {"PEER_URL": server.url}
        if peer.env.get("PEER_APP") in ("ems", "celery", "ems_tasks"):  # its wake-ups
            env["PEER_REDIS"] = stack.enter_context(_running("redis")).url
        assert server.process is not None
        return Contest(peer, env, server.process.pid, Path(folder), scale).run()


@contextlib.contextmanager
def _running(name: str) -> Iterator[Server]:
    kind, package = SERVERS[name]
    server = kind(Programs.find(package) if package else Programs())
    try:
        server.prepare()
        server.start()
        server.wait()
        yield server
    finally:
        server.stop()


def _table(figures: list[Figures]) -> str:
    lines = [
        "| | durable | " + " | ".join(COLUMNS) + " |",
        "|---|---|" + "--:|" * len(COLUMNS),
    ]
    for one in figures:
        values = as_json(one)
        cells = ["–" if values[key] is None else f"{values[key]:,}" for key in COLUMNS.values()]
        lines.append(
            f"| {one.peer} | {'yes' if one.durable else 'no'} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
