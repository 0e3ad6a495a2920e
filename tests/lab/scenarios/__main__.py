"""``python -m tests.lab.scenarios NAME [--full [--keep]] [--plain] [--server mariadb]``.

``--keep`` writes what a full run has shown to the figures of docs/about/benchmarks/scenarios.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tests.lab.benchmarks.kept import keep
from tests.lab.benchmarks.tables import SCENARIOS
from tests.servers import running

if TYPE_CHECKING:
    from tests.lab.scenarios.report import Report


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lab.scenarios")
    parser.add_argument("name")
    parser.add_argument("--full", action="store_true", help="150,000 messages instead of 4,500")
    parser.add_argument("--keep", action="store_true", help="for the page of scenarios")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long spark disturbs")
    parser.add_argument("--plain", action="store_true", help="handlers without atomic=True")
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    if options.keep and (not options.full or options.plain or options.name not in SCENARIOS):
        parser.error(f"what is kept are full runs with atomic=True of {', '.join(SCENARIOS)}")
    # Servers of its own, also where the environment names some: it will kill them.
    for kind in (options.server, "redis"):
        os.environ.pop(f"EMS_TEST_{kind.upper()}_URL", None)
    with running([options.server, "redis"]) as servers:
        os.environ.update(
            {
                "DJANGO_SETTINGS_MODULE": "tests.lab.scenarios.settings",
                "EMS_TEST_DB": options.server,
                f"EMS_TEST_{options.server.upper()}_URL": servers[options.server].url,
                "EMS_TEST_REDIS_URL": servers["redis"].url,
                "EMS_TEST_DB_NAME": "scenario",
                "EMS_TEST_FOLDER": tempfile.mkdtemp(prefix="ems-scenario-"),
            }
        )
        if options.plain:
            os.environ["EMS_SCENARIO_PLAIN"] = "1"
        return _play(options, servers)


def _play(options: argparse.Namespace, servers: Mapping[str, object]) -> int:
    import django
    import MySQLdb

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.lab.scenarios.disturbances import DISTURBANCES
    from tests.lab.scenarios.preparing import differences
    from tests.lab.scenarios.stage import Stage

    if options.name not in DISTURBANCES:
        print(f"There is no scenario {options.name!r}: {', '.join(DISTURBANCES)}")
        return 2
    settings = connection.settings_dict
    server = MySQLdb.connect(host=settings["HOST"], port=int(settings["PORT"]), user="root")
    server.cursor().execute("CREATE DATABASE scenario CHARACTER SET utf8mb4")
    server.close()
    call_command("migrate", run_syncdb=True, verbosity=0)
    may_miss = options.name == "truncate"
    machines = servers[options.server], servers["redis"]
    stage = Stage(
        *machines,
        full=options.full,
        may_miss=may_miss,
        cast=options.name,
        minutes=options.minutes,
    )
    load, started = os.getloadavg()[0], time.monotonic()
    result = stage.run(DISTURBANCES[options.name])
    seconds = time.monotonic() - started
    print(result)
    prepares = options.name == "two-phase"
    # Prepared messages have the order of their commits, and a check commits late.
    wrong = result.failures(atomic=not options.plain, may_miss=may_miss, in_order=not prepares)
    if prepares:
        wrong += differences(stage.told())
    if options.name == "database":  # a restart of the server frees the locks of all clients
        wrong += stage.taken_for_dead()
    print("\n".join(["BROKEN:", *wrong]) if wrong else "Every promise held.")
    if options.keep:
        _keep(options.name, result, seconds, wrong, load)
    return 1 if wrong else 0


def _keep(name: str, result: Report, seconds: float, wrong: list[str], load: float) -> None:
    from streams.observe.mysql_server import Server

    server = Server("default")
    kind = "MariaDB" if server.is_mariadb else "MySQL"
    about = {"server": f"{kind} {'.'.join(map(str, server.version))}", "load": round(load, 1)}
    shown: dict[str, object] = {"seconds": round(seconds), "records/s": round(result.rate)}
    shown |= {"longest gap, s": round(result.longest_gap, 1), "broken": wrong}
    rows = [{"name": row.group, "values": asdict(row)} for row in result.rows]
    keep(f"scenario-{name}", {**shown, "rows": rows}, **about)


if __name__ == "__main__":
    sys.exit(main())
