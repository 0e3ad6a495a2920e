"""Runs the targets of ``make``: ``python3 tests/dev.py NAME [ARGUMENTS]``. Standard library only.

It makes its virtual environments, starts its servers (servers.py) and passes arguments that it does
not know to the program it runs: ``tests/dev.py test --db mysql tests/test_setup.py -k zone``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of tests/: its modules are tests.servers and so on

from tests import environments, everything  # noqa: E402 - the line above is what makes them importable
from tests.browser.chromium import installed  # noqa: E402
from tests.java import OLDEST, java_environment  # noqa: E402
from tests.java import version as java_version  # noqa: E402
from tests.legs import Leg, own_redis, run_all  # noqa: E402
from tests.packages import Unavailable, url_variable  # noqa: E402
from tests.parts import Parts, add_arguments  # noqa: E402
from tests.servers import ServerFailed, running  # noqa: E402
from tests.summary import DURATIONS, keep, summary  # noqa: E402

DATABASES = ["sqlite", "mariadb", "mysql"]
LAST_DURATIONS = ROOT / ".pytest_cache" / "durations.json"  # of the last run, for who looks
# Databases that have a leg in the suite and nothing else. In the commit tier they run the tests
# with the marker ``mariadb_11``.
FURTHER_DATABASES = ["mariadb-11"]
# And those that only the tier of everything has.
RARE_DATABASES = ["mysql-pymysql"]
KNOWN_DATABASES = [*DATABASES, *FURTHER_DATABASES, *RARE_DATABASES]
PACKAGES = ["streams", "monitoring", "sparkjobs", "emsproject"]
SESSION_TIME = re.compile(r"\b((NOW|SYSDATE|LOCALTIME|CURDATE|CURTIME)\(|CURRENT_TIMESTAMP)")
LONGEST_FIRST = ["mysql", "mariadb", "sqlite", *FURTHER_DATABASES, *RARE_DATABASES]
QUICK = ["-m", "not slow and not bench and not exhaustive"]
QUICK_ON_A_DJANGO = ["-m", "(not slow or every_django) and not bench and not exhaustive"]
# Legs that run at the same time. They wait for half of their time, so two cores can run three.
AT_A_TIME = int(os.environ.get("EMS_TEST_AT_A_TIME", "3"))


def help_(options: argparse.Namespace) -> int:
    """list the targets"""
    print(f"make TARGET [ARGS=...] [DB={'|'.join(KNOWN_DATABASES)}]\n")
    for name, command in COMMANDS.items():
        print(f"  {name:11} {command.__doc__}")
    return 0


def demo(options: argparse.Namespace) -> int:
    """show EMS at work in a minute; needs no server, no compiler, no account"""
    spark = asked_for_spark()
    env = java() if spark else {}
    return run(environments.demo(spark=spark), "manage.py", "ems_demo", *options.rest, env=env)


def asked_for_spark() -> bool:
    """Tell whether the demo shall end with Spark: SPARK=1, or yes in a terminal where Java is."""
    if "SPARK" in os.environ:
        return os.environ["SPARK"] not in ("", "0")
    if environments.has_spark() or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    if (ROOT / ".venv" / environments.STAMP).exists() or not program:
        return False  # the tests' environment has pyspark: the demo finds it
    if java_version(program) < OLDEST:
        return False
    print("Java is here. Install pyspark, too (456 MB, once), to see the figures of Spark? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def test(options: argparse.Namespace) -> int:
    """run the suite on SQLite, MariaDB (10 and 11) and MySQL, on servers of its own"""
    return suite(options, tier="commit")


def test_all(options: argparse.Namespace) -> int:
    """run everything, everywhere, in parts; goes on with what is not green on this commit"""
    parser = argparse.ArgumentParser(prog="make test-all", allow_abbrev=False)
    add_arguments(parser)
    chosen, options.rest = parser.parse_known_args(options.rest)
    return suite(options, tier="all") if options.rest else in_parts(options, chosen)


def suite(options: argparse.Namespace, tier: str) -> int:
    started_at = time.monotonic()
    commit = tier == "commit"
    with legs_of_databases(options, tier) as (legs, missing):
        run_all(legs, at_a_time=at_a_time(), again=in_ci() and commit)
    status = conclude(legs, missing, second_try_counts=commit)
    minutes = (time.monotonic() - started_at) / 60
    print(f"\nin {minutes:.1f} minutes")
    keep(legs, LAST_DURATIONS, what=f"make {options.command}", minutes=minutes)
    return status


@contextlib.contextmanager
def legs_of_databases(
    options: argparse.Namespace, tier: str
) -> Iterator[tuple[list[Leg], list[str]]]:
    """Run the servers of --db; yield a leg for each, and why others are unavailable."""
    python = environments.full()
    # On a clean clone each leg would rewrite the assertions of all tests: one does it for all.
    collection = None
    if not options.rest:
        words = [str(python), "-m", "pytest", "--collect-only"]
        collection = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    with collection or contextlib.nullcontext(), servers_for(options, in_memory=True) as env:
        if collection:
            collection.wait()
        there = [db for db in LONGEST_FIRST if db == "sqlite" or url_variable(db) in env]
        there = [db for db in there if db in options.db]
        missing = [f"{db}: no server is available" for db in options.db if db not in there]
        main = [db for db in there if db in DATABASES]
        tiers = {"EMS_TEST_TIER": tier}
        if main:  # a further server alone runs what its kind can run
            tiers["EMS_TEST_DATABASES"] = ",".join(main)
        legs = [
            Leg(db, python, options.rest, {**env, **tiers, **of_leg(db, env)}, bool(options.rest))
            for db in there
        ]
        with own_redis(legs[1:] if at_a_time() > 1 and url_variable("redis") in env else []):
            yield legs, missing


def at_a_time() -> int:
    # Tests empty their Redis: one that the environment names is for one leg at a time.
    return 1 if os.environ.get(url_variable("redis")) else AT_A_TIME


def in_parts(options: argparse.Namespace, chosen: argparse.Namespace) -> int:
    """Run the parts that are not green on this commit; exit status 0 if all are then."""
    java_environment()  # what is left out without Java or Chromium would look as if it had passed
    if not installed():
        raise Unavailable("everything includes the pages: install Chromium")
    plan = everything.plan(LONGEST_FIRST, [*map(leg_of_django, environments.DJANGOS)])
    parts = Parts("test-all", [*plan], everything.COLUMNS)
    todo = parts.chosen(chosen)
    wanted = {name.partition("/")[0] for name in todo}
    own = everything.OWN_SERVERS in wanted
    options.db = [db for db in options.db if db in wanted or (own and db == "mysql")]
    legs, missing = djangos(wanted)
    with contextlib.ExitStack() as stack:
        if options.db:
            found = stack.enter_context(legs_of_databases(options, "all"))
            legs, missing = [*found[0], *legs], [*found[1], *missing]
        by_name = {leg.name: leg for leg in legs}
        if "mysql" in by_name:
            by_name[everything.OWN_SERVERS] = of_own_servers(by_name["mysql"])
        run_all(
            [
                by_name[leg].part(name, *plan[name])
                for name in todo
                if (leg := name.partition("/")[0]) in by_name
            ],
            at_a_time=at_a_time(),
            again=True,
            ended=lambda leg: everything.add(parts, leg),
        )
    whole = everything.legs_of([*parts.known()])
    print("\n".join(parts.table()))
    conclude(whole, missing, second_try_counts=False)
    print("\n".join(parts.conclusion()))
    if parts.all_green():
        keep(whole, DURATIONS, what="make test-all", minutes=sum(leg.seconds for leg in whole) / 60)
    return int(not parts.all_green())


def of_own_servers(mysql: Leg) -> Leg:
    """Return the leg of the tests that each start servers, chosen as for MySQL."""
    env = {**mysql.env, "EMS_TEST_DATABASES": "mysql"}
    return replace(mysql, name=everything.OWN_SERVERS, env=env)


def of_leg(db: str, env: dict[str, str]) -> dict[str, str]:
    """Return what tells a run of pytest its database."""
    if db in DATABASES:
        return {"EMS_TEST_DB": db}
    vendor, _, which = db.partition("-")
    url = env[url_variable(db)]
    driver = {"EMS_TEST_DRIVER": which} if which == "pymysql" else {}
    return {"EMS_TEST_DB": vendor, url_variable(vendor): url, "EMS_TEST_LEG": "further", **driver}


def test_django(options: argparse.Namespace) -> int:
    """run what is quick, on SQLite, on every version of Django (ARGS="--django 6.1": on one)"""
    parser = argparse.ArgumentParser(prog="make test-django", allow_abbrev=False)
    parser.add_argument("--django", action="append", choices=environments.DJANGOS)
    chosen, words = parser.parse_known_args(options.rest)
    legs, missing = djangos({*map(leg_of_django, chosen.django or environments.DJANGOS)})
    for leg in legs:
        leg.words += words
    run_all(legs, at_a_time=AT_A_TIME, again=False)
    return conclude(legs, missing, second_try_counts=False)


def conclude(legs: list[Leg], missing: list[str], *, second_try_counts: bool) -> int:
    """Print the summary; return the exit status."""
    print("\n".join(summary(legs)))
    for reason in missing:
        print(f"\n*** NOT TESTED on {reason}. ***")
    return int(not legs or not all(leg.passed(at_once=not second_try_counts) for leg in legs))


def leg_of_django(version: str) -> str:
    return f"Django-{version}"


def djangos(wanted: set[str]) -> tuple[list[Leg], list[str]]:
    """Return these legs, each a version of Django, and why some are unavailable."""
    legs: list[Leg] = []
    missing: list[str] = []
    for version in [v for v in environments.DJANGOS if leg_of_django(v) in wanted]:
        try:
            python = environments.of_django(version)
        except environments.Missing as reason:
            missing.append(f"Django {version}: {reason}")
        else:
            name, env = leg_of_django(version), {"EMS_TEST_DB": "sqlite"}
            legs.append(Leg(name, python, list(QUICK_ON_A_DJANGO), env))
    return legs, missing


def test_fast(options: argparse.Namespace) -> int:
    """run what is quick, on SQLite only"""
    env = {"EMS_TEST_DB": "sqlite"}
    return run(environments.light(), "-m", "pytest", "-q", *QUICK, *options.rest, env=env)


def lint(options: argparse.Namespace) -> int:
    """check style, formatting, the clock in SQL, and that no migration is missing"""
    python = environments.light()
    return (
        session_time_in_sql()
        or run(python, "-m", "ruff", "check", *options.rest)
        or run(python, "-m", "ruff", "format", "--check")
        or run(python, "manage.py", "makemigrations", "--check", "--dry-run")
    )


def session_time_in_sql() -> int:
    """Find the session's local time in raw SQL, which ruff's ban of ``Now`` cannot see."""
    found = 0
    for path in sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if SESSION_TIME.search(line):
                print(f"{path.relative_to(ROOT)}:{number}: use UTC_TIMESTAMP(6): {line.strip()}")
                found = 1
    return found


def types(options: argparse.Namespace) -> int:
    """check the type annotations"""
    return run(environments.light(), "-m", "mypy", *options.rest)


def docs(options: argparse.Namespace) -> int:
    """build the documentation as a site, into site/; a broken link fails"""
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # the theme's advertisement for its successor
    words = ["-m", "mkdocs", "build", "--strict", *options.rest]
    return run(environments.docs(), *words, env=quiet)


def messages(options: argparse.Namespace) -> int:
    """write the catalogues of translations anew (then translate what is new there)"""
    return run(environments.light(), "-m", "tests.catalogues")


def bench(options: argparse.Namespace) -> int:
    """measure, and count what must not grow (ARGS="consume growth", stress, spark)"""
    return with_servers("tests.lab.benchmarks", options)


def peers(options: argparse.Namespace) -> int:
    """measure EMS beside other queues and streams (ARGS="--only ems,ox --scale 0.1")"""
    return run(environments.peers(), "-m", "tests.lab.peers", *options.rest)


def mutants(options: argparse.Namespace) -> int:
    """break the code on purpose and see that a test notices"""
    return with_servers("tests.lab.mutants", options, in_memory=True)


def matrix(options: argparse.Namespace) -> int:
    """use the wheel on each Python, Django, server and driver (ARGS="--part 6.1/3.13 --keep")"""
    servers = [db for db in options.db if db != "sqlite"]
    env = {"EMS_MATRIX_SERVERS": ",".join(servers)}
    python = environments.full()
    with servers_for(options, in_memory=True) as found:
        return run(python, "-m", "tests.matrix", *options.rest, env={**found, **env})


def schema(options: argparse.Namespace) -> int:
    """keep the tables of a release as a dump, with rows, for the tests of upgrades (ARGS=0.1.0)"""
    parser = argparse.ArgumentParser(prog="make schema", allow_abbrev=False)
    parser.add_argument("release")
    release = {"EMS_KEEP_RELEASE": parser.parse_args(options.rest).release}
    python = environments.full()
    with servers_for(options, in_memory=True) as env:
        words = ("-m", "pytest", "-q", "tests/upgrades/keep_release.py")
        found = [
            run(python, *words, env={**env, **release, **of_leg(db, env)}) for db in options.db
        ]
    return max(found)


def scenario(options: argparse.Namespace) -> int:
    """play a scenario on servers of its own (NAME=kill, ARGS=--full; NAME=failover)"""
    module = "tests.lab.ha" if options.rest[:1] == ["failover"] else "tests.lab.scenarios"
    return run(environments.full(), "-m", module, *options.rest, env=java())


def release(options: argparse.Namespace) -> int:
    """build and check what is published, into dist/; stops before the upload"""
    return run(environments.release(), "-m", "tests.release", *options.rest)


def servers(options: argparse.Namespace) -> int:
    """start the servers and keep them until Ctrl-C (--env FILE: how to reach them)"""
    parser = argparse.ArgumentParser(prog="dev.py servers", allow_abbrev=False)
    parser.add_argument("--env", type=Path, help="write export lines into this file")
    env_file = parser.parse_args(options.rest).env
    with servers_for(options) as env:
        lines = "".join(f"export {name}={url}\n" for name, url in env.items())
        print(lines, end="", flush=True)
        try:
            if env_file:
                env_file.write_text(lines)
            while True:
                signal.pause()
        finally:
            if env_file:
                env_file.unlink(missing_ok=True)


@contextlib.contextmanager
def servers_for(
    options: argparse.Namespace, *, in_memory: bool = False
) -> Iterator[dict[str, str]]:
    """Run the servers of --db; yield the variables that name the available ones."""
    kinds = [*(db for db in options.db if db != "sqlite"), "redis"]
    with running(kinds, unavailable=report_unavailable, in_memory=in_memory) as found:
        urls = {url_variable(kind): server.url for kind, server in found.items()}
        if not installed():
            print("*** no Chromium: no page is looked at ***", file=sys.stderr, flush=True)
        yield {**urls, **environments.driver_environment(), **java()}


def java() -> dict[str, str]:
    """Return the environment in which a process finds Java; {} leaves the tests of Spark out."""
    try:
        return java_environment()
    except Unavailable as reason:
        report_unavailable("Java", reason)
        return {}


def report_unavailable(kind: str, reason: Unavailable) -> None:
    if in_ci():  # a test that silently did not run would look like one that passed
        raise reason
    print(f"*** no {kind}: {reason} ***", file=sys.stderr, flush=True)


def with_servers(module: str, options: argparse.Namespace, *, in_memory: bool = False) -> int:
    """Run a module of the tests with all servers up and named in its environment."""
    python = environments.full()
    with servers_for(options, in_memory=in_memory) as env:
        return run(python, "-m", module, *options.rest, env=env)


def run(python: Path, *words: str, env: dict[str, str] | None = None) -> int:
    """Run Python in the project's folder; return its exit status.

    When this is interrupted the child still ends by itself: subprocess.run() would kill it within
    a quarter of a second, and leave behind what it has started.
    """
    process = subprocess.Popen([python, *words], cwd=ROOT, env={**os.environ, **(env or {})})
    try:
        return process.wait()
    except KeyboardInterrupt:  # the terminal has told the child, too
        if process.wait() == 0:
            return 0
        raise
    except SystemExit:  # a kill: see main()
        process.terminate()
        process.wait()
        raise


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "help": help_,
    "demo": demo,
    "test": test,
    "test-all": test_all,
    "test-django": test_django,
    "test-fast": test_fast,
    "lint": lint,
    "types": types,
    "docs": docs,
    "messages": messages,
    "bench": bench,
    "peers": peers,
    "mutants": mutants,
    "matrix": matrix,
    "schema": schema,
    "scenario": scenario,
    "servers": servers,
    "release": release,
}


def of_command(command: str) -> list[str]:
    """Return the databases that a command has beside the three of all commands."""
    further = {
        "test": FURTHER_DATABASES,
        "test-all": [*FURTHER_DATABASES, *RARE_DATABASES],
        "matrix": [db for db in [*FURTHER_DATABASES, *RARE_DATABASES] if "pymysql" not in db],
    }
    return further.get(command, [])


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py", allow_abbrev=False, add_help=False)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--db", action="append", choices=KNOWN_DATABASES)
    options, rest = parser.parse_known_args()
    options.rest = rest
    # Tests start hundreds of processes: compiling all of EMS anew costs each of them a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options.db = options.db or [*DATABASES, *of_command(options.command)]
    # A closed terminal or a kill must end the servers as Ctrl-C does: by leaving the with blocks.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        return COMMANDS[options.command](options)
    except (Unavailable, ServerFailed, environments.Missing) as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
