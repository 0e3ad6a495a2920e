"""Runs the suites of others on this backend: those of Django itself.

``python -m tests.tasks_.peers`` fetches the source distribution by pip into the cache, rewrites
which backend its tests use, and runs them on the database of EMS_TEST_DB. Nothing of it is kept in
this repository. It fails if a test fails that is not among the deviations, or one of these passes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.packages import cache_folder

ROOT = Path(__file__).resolve().parent.parent.parent

DJANGO = "6.0.10"
SHA256 = "6005d030df924f85088454c18bd35dcf082b058aa355ad3df520d8de9aef9f41"

IN_ASYNC = "it looks into the tables in async code, without await: there Django allows no query"
CHANGES = "it changes the dummy's list of results; here they are rows"
NOT_OURS = "it says that Django's ImmediateBackend has no results; this one has"
DEVIATIONS = {
    "TaskTestCase.test_enqueue_task_async": IN_ASYNC,
    "TaskTestCase.test_refresh_result": IN_ASYNC,
    "DummyBackendTestCase.test_enqueue_task_async": IN_ASYNC,
    "DummyBackendTestCase.test_refresh_result": CHANGES,
    "DummyBackendTestCase.test_refresh_result_async": CHANGES,
    "ImmediateBackendTestCase.test_cannot_get_result": NOT_OURS,
    "ImmediateBackendTestCase.test_cannot_refresh_result": NOT_OURS,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "run_after is supported",
}

# What stands in the suite, and what for. The tests of a backend without tables need none.
SHIMS = "tests.tasks_.shims"
EVERYWHERE = [
    (r"\bSimpleTestCase\b", "TestCase"),
    (r"available_apps = \[\]", "available_apps = None"),
    (r"django\.tasks\.backends\.dummy\.DummyBackend", f"{SHIMS}.Keeping"),
    (
        r"from django\.tasks\.backends\.dummy import DummyBackend",
        f"from {SHIMS} import Keeping as DummyBackend",
    ),
]
IMMEDIATE = [
    (r"django\.tasks\.backends\.immediate\.ImmediateBackend", f"{SHIMS}.Draining"),
    (
        r"from django\.tasks\.backends\.immediate import ImmediateBackend",
        f"from {SHIMS} import Draining as ImmediateBackend",
    ),
]
# The backport has the same modules under another name.
BACKPORT = [
    (r"\bdjango\.tasks\b", "django_tasks"),
    (r"\bInvalidTask\b", "InvalidTaskError"),
    (r"\bInvalidTaskBackend\b", "InvalidTaskBackendError"),
    (r"does not support async Tasks", "does not support async tasks"),
]
SUITES = ("test_tasks.py", "test_dummy_backend.py", "test_immediate_backend.py", "tasks.py")


@dataclass(frozen=True)
class Report:
    """What came of a suite: how many tests passed, and what is not as it is said to be."""

    passed: int
    failed: dict[str, str]

    @property
    def unexpected(self) -> dict[str, str]:
        return {name: text for name, text in self.failed.items() if name not in DEVIATIONS}

    @property
    def no_longer(self) -> list[str]:
        return sorted(DEVIATIONS.keys() - self.failed.keys())


def fetched() -> Path:
    """Return the source distribution; it is fetched once. Raises RuntimeError for another one."""
    folder = cache_folder() / "peers"
    file = folder / f"django-{DJANGO}.tar.gz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = ["download", "-q", "-d", str(folder), "--no-deps", "--no-binary", ":all:"]
        # It is only read, on any Python.
        words += ["--python-version", "3.13", f"Django=={DJANGO}"]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        raise RuntimeError(f"{file} is not what these tests were written for")
    return file


def unpacked(folder: Path) -> None:
    """Write the rewritten tests as the package ``tasks``, as Django's own runner has them."""
    package = folder / "tasks"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    with tarfile.open(fetched()) as archive:
        for name in SUITES:
            member = archive.extractfile(f"django-{DJANGO}/tests/tasks/{name}")
            assert member is not None
            (package / name).write_text(rewritten(name, member.read().decode()))


def rewritten(name: str, text: str) -> str:
    rules = EVERYWHERE + (IMMEDIATE if "immediate" in name else [])
    if not find_spec("django.tasks"):
        rules = rules + BACKPORT
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


def run(folder: Path) -> Report:
    unpacked(folder)
    result = folder / "report.xml"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # some tests look up results in async code
        "EMS_TEST_RUN": f"peers{os.getpid()}",
        "EMS_TEST_TASKS": f'{{"default": {{"BACKEND": "{SHIMS}.Keeping"}}}}',
    }
    env.pop("EMS_TEST_FOLDER", None)
    words = ["-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider"]
    words += ["--ds", "tests.settings", "-p", "tests.tasks_.peers_plugin"]
    command = [sys.executable, "-m", "pytest", *words, f"--junitxml={result}", str(folder)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    if not result.exists():
        raise RuntimeError(done.stdout + done.stderr)
    return read(result)


def read(file: Path) -> Report:
    passed, failed = 0, {}
    for case in ET.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        wrong = [one for one in case if one.tag in ("failure", "error")]
        if wrong:
            failed[name] = str(wrong[0].text)
        else:
            passed += not any(one.tag == "skipped" for one in case)
    return Report(passed, failed)


def main() -> None:
    report = run(cache_folder() / "peers" / f"suite-{os.getpid()}")
    print(f"{report.passed} passed, {len(report.failed)} failed")
    for name, text in report.unexpected.items():
        print(f"--- {name} fails:\n{text}")
    for name in report.no_longer:
        print(f"--- {name} is among the deviations, and passes")
    sys.exit(bool(report.unexpected or report.no_longer))


if __name__ == "__main__":
    main()
