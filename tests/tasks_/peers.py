"""Runs the suites of others on this backend: that of Django itself, and that of django-tasks-db.

``python -m tests.tasks_.peers`` fetches the source distributions by pip into the cache, rewrites
which backend their tests use, and runs them on the database of EMS_TEST_DB. Nothing of them is kept
in this repository. It fails if a test fails that is not among the deviations, or one of these
passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.tasks_.peers_suites import SUITES, Suite

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Report:
    """What came of a suite: what became of each test, and the text of each that failed."""

    suite: Suite
    kinds: Mapping[str, str]
    failed: Mapping[str, str]

    @property
    def counts(self) -> dict[str, int]:
        kinds = list(self.kinds.values())
        return {kind: kinds.count(kind) for kind in ("passed", "failed", "skipped")}

    @property
    def unexpected(self) -> dict[str, str]:
        known = self.suite.deviations
        return {name: text for name, text in self.failed.items() if name not in known}

    @property
    def no_longer(self) -> list[str]:
        """Return the deviations that pass, or that are not there."""
        fine = ("failed", "skipped")
        return sorted(name for name in self.suite.deviations if self.kinds.get(name) not in fine)


def unpacked(suite: Suite, folder: Path) -> None:
    """Write the rewritten tests as the package ``tasks``, as Django's own runner has them."""
    package = folder / "tasks"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, file in suite.files.items():
        (package / name).write_text(file.text)
    whole = "".join(path.read_text() for path in package.glob("test_*.py"))
    for name in chain(*suite.left_out.values()):
        assert f" {name.rpartition('::')[2]}(" in whole, f"there is no {name}"


def run(suite: Suite, folder: Path, *words: str) -> Report:
    """Run a suite in ``folder``; ``words`` are further arguments of pytest."""
    unpacked(suite, folder)
    result = folder / "report.xml"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # some tests look up results in async code
        "EMS_TEST_RUN": f"peers{os.getpid()}",
        "EMS_TEST_TASKS": json.dumps({"default": {"BACKEND": suite.backend}}),
    }
    env.pop("EMS_TEST_FOLDER", None)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", "--ds", "tests.settings"]
    command += ["-p", "tests.tasks_.peers_plugin", f"--junitxml={result}"]
    command += [f"--deselect={name}" for name in _left_out(suite)]
    command += [*words, str(folder)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode > 1 or not result.exists():  # 1: some tests have failed
        raise RuntimeError(done.stdout + done.stderr)
    return read(suite, result)


def _left_out(suite: Suite) -> list[str]:
    """Return what pytest is to deselect."""
    names = list(chain(*suite.left_out.values()))
    return [f"tasks/{file}::{name}" for file in suite.files for name in names]


def read(suite: Suite, file: Path) -> Report:
    kinds: dict[str, str] = {}
    failed = {}
    for case in ET.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        wrong = [one for one in case if one.tag in ("failure", "error")]
        if wrong:
            failed[name] = str(wrong[0].text)
        is_skipped = any(one.tag == "skipped" for one in case)
        # A test with subtests is there several times.
        kinds[name] = "failed" if name in failed else "skipped" if is_skipped else "passed"
    return Report(suite, kinds, failed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tasks_.peers")
    parser.add_argument("suites", nargs="*", default=list(SUITES))
    parser.add_argument("-k", default="", help="only these tests")
    options = parser.parse_args()
    status = 0
    for name in options.suites:
        with tempfile.TemporaryDirectory(prefix="ems-suite-") as folder:
            report = run(SUITES[name], Path(folder), *(["-k", options.k] if options.k else []))
        print(f"{name}: {report.counts}")
        for test, text in report.unexpected.items():
            print(f"--- {test} fails:\n{text}")
        for test in report.no_longer if not options.k else ():
            print(f"--- {test} is among the deviations, and does not fail")
        status |= bool(report.unexpected or report.no_longer)
    sys.exit(status)


if __name__ == "__main__":
    main()
