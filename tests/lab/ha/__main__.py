"""``python -m tests.lab.ha [--cluster semisync] [--fault kill] [--repeat 20] [--keep]``: failovers.

``--keep`` adds what they have shown to the figures of docs/about/benchmarks/failover.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.kept import keep, kept
from tests.lab.ha.clusters import CLUSTERS, DATABASE, Cluster, run
from tests.lab.ha.faults import FAULTS, Stage
from tests.lab.ha.router import HAProxy, Router
from tests.packages import Unavailable

COLUMNS = {
    "acked": "acked",
    "acked_before": "before",
    "acked_after": "after",
    "lost": "lost",
    "unhandled": "unhandled",
    "unknown": "unknown",
    "unknown_there": "there",
    "failed": "failed",
    "twice": "twice",
    "reused": "reused",
    "no_send": "no send, s",
    "no_handled": "handled, s",
    "rewound": "rewound, s",
    "ended": "ended",
}

RESULT = "result.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lab.ha")
    parser.add_argument("name", nargs="?", default="failover", help=argparse.SUPPRESS)
    parser.add_argument("--cluster", choices=CLUSTERS, default="semisync")
    parser.add_argument("--fault", choices=FAULTS, default="kill")
    parser.add_argument("--haproxy", action="store_true", help="before the servers; only kills")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="for the page of failovers")
    options = parser.parse_args()
    print(f"{options.cluster}, {options.fault}: {options.repeat} times")
    print("".join(f"{title:>11}" for title in COLUMNS.values()), flush=True)
    wrong: list[str] = []
    for number in range(options.repeat):
        folder = Path(tempfile.mkdtemp(prefix="ems-failover-"))
        try:
            # A process for each: Django is set up for one database.
            pid = os.fork()
            if pid == 0:
                os._exit(_one(options.cluster, options.fault, folder, haproxy=options.haproxy))
            _pid, status = os.waitpid(pid, 0)
            if status:
                wrong.append(f"run {number + 1} failed")
            if options.keep and (folder / RESULT).exists():
                way = "HAProxy" if options.haproxy else ""
                shown = json.loads((folder / RESULT).read_text())
                _keep({"cluster": options.cluster, "fault": options.fault, "way": way, **shown})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(["BROKEN:", *wrong]) if wrong else "Every promise held.")
    return 1 if wrong else 0


def _keep(row: dict[str, Any]) -> None:
    keep("failover", {"rows": [*kept("failover").get("rows", []), row]})


def _one(kind: str, fault: str, folder: Path, *, haproxy: bool) -> int:
    try:
        with CLUSTERS[kind]() as cluster, _way(cluster, haproxy=haproxy) as router:
            run(cluster.primary, f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
            url = f"mysql://{cluster.user}@127.0.0.1:{router.port}/"
            os.environ.update(
                {
                    "DJANGO_SETTINGS_MODULE": "tests.lab.ha.settings",
                    "EMS_TEST_DB": cluster.vendor,
                    f"EMS_TEST_{cluster.vendor.upper()}_URL": url,
                    "EMS_TEST_DB_NAME": DATABASE,
                    "EMS_TEST_FOLDER": str(folder),
                }
            )
            os.environ.pop("EMS_TEST_REDIS_URL", None)
            import django

            django.setup()
            from tests.lab.ha.failover import play

            result = play(Stage(cluster, router, folder), FAULTS[fault])
            row = vars(result)
            print("".join(f"{row[name]!s:>11}" for name in COLUMNS), flush=True)
            wrong = result.failures(lossless=cluster.lossless)
            print("\n".join(wrong), flush=True)
            (folder / RESULT).write_text(json.dumps({**row, "broken": wrong}))
            return 1 if wrong else 0
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1


def _way(cluster: Cluster, *, haproxy: bool) -> Router | HAProxy:
    if not haproxy:
        return Router(cluster.primary.port)
    first, second = (node.port for node in cluster.nodes)
    return HAProxy(first, second)


if __name__ == "__main__":
    sys.exit(main())
