"""Runs the integration tests of kombu and of Celery on EMS: ``python -m tests.celery_.peers``.

Their source distributions are fetched by pip into the cache, and checked: nothing of them is here.
Each deviation has a name and a reason. The run fails if a test fails that is not among them, and if
one passes that is; but tests that Celery itself calls flaky may do either.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import django
from django.core.management import call_command
from django.db import connection

from tests.sdists import Sdist


@dataclass(frozen=True)
class Suite:
    """A suite of others: where it is, what is run, and which tests fail, with the reason."""

    sdist: Sdist
    tests: tuple[str, ...]
    deviations: dict[str, str] = field(default_factory=dict)
    flaky: dict[str, str] = field(default_factory=dict)  # these may fail or pass
    files: dict[str, str] = field(default_factory=dict)  # that are added, by path


CONNECTIONS = """\
import kombu
import pytest

from .common import (
    BaseExchangeTypes, BaseMessage, BasePriority, BaseTimeToLive, BasicFunctionality,
)

STEPS = {"priority_steps": [5, 8]}


@pytest.fixture
def connection(request):
    options = STEPS if request.cls is TestPriority else {}
    return kombu.Connection("ems://", transport_options=options)


@pytest.fixture
def invalid_connection():
    return kombu.Connection("ems://nowhere")


class TestBasic(BasicFunctionality):
    pass


class TestExchanges(BaseExchangeTypes):
    pass


class TestTimeToLive(BaseTimeToLive):
    pass


class TestPriority(BasePriority):
    PRIORITY_ORDER = "asc"


class TestMessage(BaseMessage):
    pass
"""
SET_UP = "import django\n\ndjango.setup()\n"

CLASSES = "python_classes=Test* test_*"  # as Celery's own configuration has it

ONE_EACH = "drain_events() hands over one message, as on Redis, whose tests replace this one"
TOO_LONG = (
    "its tasks sleep 30 seconds in the one process of the worker, and it waits for all of them,"
    " within its own limit of 20: no broker makes that shorter"
)
NOT_JSON = "it puts an object into the properties of a message that JSON cannot hold"
FLAKY = "Celery calls it flaky and repeats it; where it fails, it fails with the broker Redis, too"
NO_PRIORITY = (
    "a queue of one process has no priorities: commands and replies come as they were sent"
)

SUITES = {
    "kombu": Suite(
        Sdist(
            "kombu",
            "5.7.0",
            "31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9",
        ),
        ("t/integration/test_ems.py",),
        {
            "TestPriority::test_publish_consume": ONE_EACH,
            "TestPriority::test_publish_requeue_consume": ONE_EACH,
            "TestPriority::test_simple_buffer_publish_consume": NO_PRIORITY,
        },
        {},
        {"t/integration/test_ems.py": CONNECTIONS, "ems_set_up.py": SET_UP},
    ),
    "celery": Suite(
        Sdist(
            "celery",
            "5.7.0",
            "6a5dfcf6662287204f009a02002b9e66c83d4105e47ebabdc7079108772fc6f0",
        ),
        ("t/integration/test_canvas.py", "t/integration/test_tasks.py"),
        {
            "test_tasks::test_revoked_by_headers_complex_canvas": TOO_LONG,
            "test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication"
            "[redis-group-ids]": NOT_JSON,
        },
        {
            "test_chord::test_chord_on_error": FLAKY,
            "test_trace_log_arguments::test_task_success": FLAKY,
            "test_trace_log_arguments::test_task_failed": FLAKY,
        },
        {"ems_set_up.py": SET_UP},
    ),
}


def unpacked(suite: Suite, folder: Path) -> Path:
    """Fetch the source of a suite, check it, and unpack it into ``folder``."""
    with tarfile.open(suite.sdist.fetched()) as tar:
        tar.extractall(folder, filter="data")
    # Only its tests: what they test is the installed package.
    target = folder / "tests-of-it"
    shutil.move(str(folder / suite.sdist.name / "t"), target / "t")
    for path, text in suite.files.items():
        (target / path).write_text(text)
    return target


def results(path: Path) -> dict[str, str]:
    """Return what became of each test: passed, failed or skipped."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        kinds = {child.tag for child in case}
        # A test with subtests is there several times.
        failed = bool(kinds & {"failure", "error"}) or found.get(name) == "failed"
        found[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return found


def run(suite: Suite, words: list[str]) -> bool:
    """Run a suite; say what it came to, and return whether that is as expected."""
    with tempfile.TemporaryDirectory(prefix="ems-suite-") as name:
        folder = Path(name)
        tests = unpacked(suite, folder)
        xml = folder / "results.xml"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
        env |= {"TEST_BROKER": "ems://", "PYTHONWARNINGS": "ignore", "C_FORCE_ROOT": "1"}
        env |= {"WORKER_LOGLEVEL": "INFO"}  # some tests of Celery read what its worker logs
        redis = urlsplit(os.environ.get("EMS_TEST_REDIS_URL", ""))
        env |= {"REDIS_HOST": redis.hostname or "", "REDIS_PORT": str(redis.port)}
        env |= {"TEST_BACKEND": f"redis://{redis.netloc}/3"}
        plugins = ["-p", "no:django", "-p", "no:cacheprovider", "-p", "ems_set_up"]
        plugins += ["-p", "celery.contrib.pytest"]  # the fixtures of its own suite
        options = ["-v", *plugins, "-o", CLASSES, f"--junitxml={xml}"]
        command = [sys.executable, "-m", "pytest", *options, "-c", os.devnull, "--rootdir"]
        ended = subprocess.run([*command, str(tests), *suite.tests, *words], cwd=tests, env=env)
        found = results(xml) if xml.exists() else {}
    counts = {kind: list(found.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    failed = {test for test, kind in found.items() if kind == "failed"}
    passed = {test for test, kind in found.items() if kind == "passed"}
    known = suite.deviations | suite.flaky
    new, gone = failed - known.keys(), passed & suite.deviations.keys()
    print(f"{suite.sdist.name}: {counts}")
    for test in sorted(failed & known.keys()):
        print(f"  {test}: {known[test]}")
    for test in sorted(new):
        print(f"  *** {test} failed")
    for test in sorted(gone):
        print(f"  *** {test} passes: it is no deviation any more")
    # Some tests failed is 1; any other says that pytest did not run them, or found none.
    ran = ended.returncode in (0, 1) and counts["passed"] + counts["failed"] > 0
    if not ran:
        print(f"  *** no test has run, or not all: pytest ended with {ended.returncode}")
    return ran and not (new or gone)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.celery_.peers")
    parser.add_argument("suites", nargs="*", default=list(SUITES))
    parser.add_argument("-k", default="", help="only these tests")
    options = parser.parse_args()
    words = ["-k", options.k] if options.k else []
    with tempfile.TemporaryDirectory(prefix="ems-suites-") as folder:
        # A database of its own, which the tests and their workers share.
        os.environ |= {"EMS_TEST_FOLDER": folder, "EMS_TEST_RUN": f"suites_{os.getpid()}"}
        os.environ |= {"DJANGO_SETTINGS_MODULE": "tests.settings"}
        django.setup()
        with database():
            call_command("migrate", verbosity=0)
            return 0 if all(run(SUITES[name], words) for name in options.suites) else 1


@contextmanager
def database() -> Iterator[None]:
    """Make the database, and drop it at the end; a file of SQLite makes itself."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        yield
        return
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    try:
        yield
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{name}`")


if __name__ == "__main__":
    sys.exit(main())
