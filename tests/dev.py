"""Everything that ``make`` does: ``python3 tests/dev.py NAME [ARGUMENTS]``. Standard library only.

It makes its virtual environments, brings its servers (servers.py) and passes what it does not
know itself on to the program it runs: ``tests/dev.py test --db mysql tests/test_setup.py -k zone``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # instead of tests/: its modules are tests.servers and so on

from tests import environments  # noqa: E402 - the line above is what makes them importable
from tests.java import java_environment  # noqa: E402
from tests.packages import Unavailable  # noqa: E402
from tests.servers import ServerFailed, running, url_variable  # noqa: E402

DATABASES = ["sqlite", "mariadb", "mysql"]
PACKAGES = ["streams", "monitoring", "sparkjobs", "emsproject"]
SESSION_TIME = re.compile(r"\b((NOW|SYSDATE|LOCALTIME|CURDATE|CURTIME)\(|CURRENT_TIMESTAMP)")
TESTS_FAILED = 1
NO_TESTS_COLLECTED = 5


def help_(options: argparse.Namespace) -> int:
    """list the targets"""
    print("make TARGET [ARGS=...] [DB=sqlite|mariadb|mysql]\n")
    for name, command in COMMANDS.items():
        print(f"  {name:10} {command.__doc__}")
    return 0


def demo(options: argparse.Namespace) -> int:
    """show EMS at work in a minute; needs no server, no compiler, no account"""
    return run(environments.demo(), "manage.py", "ems_demo", *options.rest)


def test(options: argparse.Namespace) -> int:
    """run the whole suite on SQLite, MariaDB and MySQL, on servers of its own"""
    python = environments.full()
    with servers_for(options) as env:
        there = {db: db == "sqlite" or url_variable(db) in env for db in options.db}
        outcomes = [pytest(python, db, env, options.rest) for db in options.db if there[db]]
    print("\ndatabase  result    tests  failed  skipped  seconds")
    for outcome in outcomes:
        print(outcome)
    for db in options.db:
        if not there[db]:
            print(f"\n*** NOT TESTED on {db}: no server could be had (see above). ***")
    return int(not outcomes or not all(outcome.passed for outcome in outcomes))


def test_fast(options: argparse.Namespace) -> int:
    """run what is quick, on SQLite only"""
    quick = ["-m", "not slow and not bench"]
    env = {"EMS_TEST_DB": "sqlite"}
    return run(environments.light(), "-m", "pytest", "-q", *quick, *options.rest, env=env)


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
    """Refuse what ruff's ban of ``Now`` cannot see: the session's local time in raw SQL."""
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


def bench(options: argparse.Namespace) -> int:
    """measure on MariaDB and MySQL (arguments go to tests.benchmarks)"""
    return with_servers("tests.benchmarks", options)


def mutants(options: argparse.Namespace) -> int:
    """break the code on purpose and see that a test notices"""
    return with_servers("tests.mutants", options)


def scenario(options: argparse.Namespace) -> int:
    """play a scenario on servers of its own (NAME=kill, ARGS=--full)"""
    return run(environments.full(), "-m", "tests.scenarios", *options.rest)


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
def servers_for(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Run the servers of --db; gives the variables that name those that could be had."""
    kinds = [*(db for db in options.db if db != "sqlite"), "redis"]
    with running(kinds, unavailable=report_unavailable) as found:
        urls = {url_variable(kind): server.url for kind, server in found.items()}
        yield {**urls, **environments.driver_environment(), **java()}


def java() -> dict[str, str]:
    """What a process needs around it to find Java; without it the tests of Spark are left out."""
    try:
        return java_environment()
    except Unavailable as reason:
        report_unavailable("Java", reason)
        return {}


def report_unavailable(kind: str, reason: Unavailable) -> None:
    if in_ci():  # a test that silently did not run would look like one that passed
        raise reason
    print(f"*** no {kind}: {reason} ***", file=sys.stderr, flush=True)


def with_servers(module: str, options: argparse.Namespace) -> int:
    """Run a module of the tests with all servers up and named in its environment."""
    python = environments.full()
    with servers_for(options) as env:
        return run(python, "-m", module, *options.rest, env=env)


@dataclass
class Outcome:
    """One row of the summary: how the suite went on one database."""

    db: str
    passed: bool
    seconds: float
    counts: dict[str, str]
    again: bool = False  # what failed was run a second time

    def __str__(self) -> str:
        result = "passed" if self.passed else "FAILED"
        if self.again and self.passed:
            result = "AT 2ND"
        failed = int(self.counts.get("failures", 0)) + int(self.counts.get("errors", 0))
        tests, skipped = self.counts.get("tests", "?"), self.counts.get("skipped", "?")
        return f"{self.db:9} {result:7} {tests:>7} {failed:>7} {skipped:>8} {self.seconds:>8.0f}"


def pytest(python: Path, db: str, env: dict[str, str], rest: list[str]) -> Outcome:
    """Run the suite on one database."""
    print(f"\n===== pytest on {db} =====", flush=True)
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ems-") as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "pytest", f"--junit-xml={report}", *rest]
        status = run(python, *words, env={**env, "EMS_TEST_DB": db})
        suite = ElementTree.parse(report).find("testsuite") if report.exists() else None
        again = status == TESTS_FAILED and in_ci()
        if again:
            # A shared machine may stall a process for longer than a test waits for it. What
            # fails twice has failed; what does not is named, above and in the summary.
            print(f"\n===== once more on {db}: what failed =====", flush=True)
            words = ["-m", "pytest", "--last-failed", "--last-failed-no-failures=none", *rest]
            status = run(python, *words, env={**env, "EMS_TEST_DB": db})
    return Outcome(
        db,
        # A selection may leave nothing for this database; a whole suite that is empty is a failure.
        passed=status == 0 or (status == NO_TESTS_COLLECTED and bool(rest)),
        seconds=time.monotonic() - started_at,
        counts={} if suite is None else suite.attrib,
        again=again,
    )


def run(python: Path, *words: str, env: dict[str, str] | None = None) -> int:
    """Run Python in the project's folder; returns its exit status.

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
    "test-fast": test_fast,
    "lint": lint,
    "types": types,
    "docs": docs,
    "bench": bench,
    "mutants": mutants,
    "scenario": scenario,
    "servers": servers,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py", allow_abbrev=False, add_help=False)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--db", action="append", choices=DATABASES)
    options, rest = parser.parse_known_args()
    options.rest = rest
    options.db = options.db or DATABASES
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
