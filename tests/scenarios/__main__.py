"""``python -m tests.scenarios NAME [--full] [--plain] [--server mariadb]``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping

from tests.servers import running


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.scenarios")
    parser.add_argument("name")
    parser.add_argument("--full", action="store_true", help="150,000 messages instead of 4,500")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long spark disturbs")
    parser.add_argument("--plain", action="store_true", help="handlers without atomic=True")
    parser.add_argument("--server", choices=["mysql", "mariadb"], default="mysql")
    options = parser.parse_args()
    # Servers of its own, also where the environment names some: it will kill them.
    for kind in (options.server, "redis"):
        os.environ.pop(f"EMS_TEST_{kind.upper()}_URL", None)
    with running([options.server, "redis"]) as servers:
        os.environ.update(
            {
                "DJANGO_SETTINGS_MODULE": "tests.scenarios.settings",
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

    from tests.scenarios.disturbances import DISTURBANCES
    from tests.scenarios.preparing import differences
    from tests.scenarios.stage import Stage

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
    result = stage.run(DISTURBANCES[options.name])
    print(result)
    prepares = options.name == "two-phase"
    # Prepared messages have the order of their commits, and a check commits late.
    wrong = result.failures(atomic=not options.plain, may_miss=may_miss, in_order=not prepares)
    if prepares:
        wrong += differences(stage.told())
    print("\n".join(["BROKEN:", *wrong]) if wrong else "Every promise held.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
