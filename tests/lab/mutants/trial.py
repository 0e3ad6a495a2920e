"""Runs some tests by pytest on a copy of the checkout."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import PREFIX, memory_or_disk

ROOT = Path(__file__).resolve().parents[3]

# pytest's exit status when a test has failed; from 2 on it is not a verdict on the code.
FAILED = 1
NO_END = -1

# What is told to this process and is not for the trials.
OURS = {"EMS_TEST_RUN", "EMS_TEST_REPORT"}
PATIENCE_SECONDS = 240


@dataclass(frozen=True)
class Trial:
    """The result of each test: "passed", "failed", or anything else, which is not a verdict."""

    status: int
    results: dict[str, str]
    seconds: float
    output: str

    def of(self, test: str) -> set[str]:
        """Return the results of a test, with all its parameters."""
        name = _junit_name(test)
        return {
            result
            for found, result in self.results.items()
            if found == name or found.startswith(f"{name}[")
        }

    def is_green(self, test: str) -> bool:
        return self.of(test) == {"passed"}

    def is_red(self, test: str) -> bool:
        return self.status == FAILED and "failed" in self.of(test)


@contextmanager
def snapshot() -> Iterator[Path]:
    """Copy the files of the checkout that git does not ignore, as they are now."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with _folder() as folder:
        tree = Path(folder)
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, tree / name)
        # Once, and not by each copy: a copy keeps the times by which Python knows what is compiled.
        compileall.compile_dir(tree, quiet=2, workers=0)
        yield tree


@contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    """Holds a copy that can be changed and in which tests run."""
    with _folder() as folder:
        shutil.copytree(tree, folder, dirs_exist_ok=True)
        yield Path(folder)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder in memory: on a disk, to copy the checkout takes as long as most tests.

    remove_leftovers() knows by its name whose it is.
    """
    prefix = f"{PREFIX}mu-{os.getpid()}-"
    return tempfile.TemporaryDirectory(prefix=prefix, dir=memory_or_disk(1))


def run(tree: Path, tests: Iterable[str], db: str) -> Trial:
    """Run the tests on the tree's code and on one database."""
    started_at = time.monotonic()
    report = tree / "mutant-report.xml"
    # The limit is that of the test alone: on a loaded machine making the tables takes long.
    limit = ["--timeout=30", "-o", "timeout_func_only=true"]
    # The tables of the models as they are: the migrations take a third of most trials.
    options = ["-q", "-p", "no:cacheprovider", "--nomigrations", *limit, f"--junit-xml={report}"]
    # A name of its own for each run's databases: several go on at the same time.
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    env |= {"EMS_TEST_DB": db, "EMS_TEST_TIER": "all"}
    words = [sys.executable, "-m", "pytest", *options, *dict.fromkeys(tests)]
    try:
        done = subprocess.run(
            words,
            cwd=tree,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        return Trial(NO_END, {}, PATIENCE_SECONDS, f"pytest does not end: {error}")
    results: dict[str, str] = {}
    for name, result in _results(report) if report.exists() else ():
        # A test that has failed may also leave what its fixtures cannot end.
        if results.get(name) != "failed":
            results[name] = result
    return Trial(done.returncode, results, time.monotonic() - started_at, done.stdout)


def _results(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        # <error> is a fixture that broke, <skipped> nothing at all: neither speaks of the code.
        tags = {child.tag for child in case} & {"failure", "error", "skipped"}
        result = "failed" if "failure" in tags else "passed" if not tags else min(tags)
        yield f"{case.get('classname')}.{case.get('name')}", result


def _junit_name(test: str) -> str:
    path, _, names = test.partition("::")
    return f"{path.removesuffix('.py').replace('/', '.')}.{names.replace('::', '.')}"
