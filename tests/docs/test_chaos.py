"""The bug of docs/guides/chaos.md is found and reported as on the page; mended, it passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streams.chaos.faults import KINDS
from tests.docs.documents import DOCS, ROOT, blocks, files, table

CHAOS = DOCS / "guides" / "chaos.md"

PROJECT = {
    "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = shop_settings\n",
    "shop_settings.py": """\
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "streams", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3",
                         "OPTIONS": {"transaction_mode": "IMMEDIATE"}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only-for-tests"
USE_TZ = True
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
""",
    "shop/__init__.py": "",
    "shop/models.py": """\
from django.db import models

class Order(models.Model):
    number = models.CharField(max_length=40, unique=True)
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    plugin = blocks(CHAOS, "python")[0]
    for name, text in {**PROJECT, **files(CHAOS), "conftest.py": plugin}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def run_pytest(project: Path) -> tuple[int, str]:
    """Run the tests of the page, on SQLite in memory; return the status and what they print."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DJANGO_", "PYTEST_", "EMS_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(project), str(ROOT)])
    words = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, "shop/test_booking.py"], cwd=project, env=env, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def report_in(output: str) -> str:
    """Return the text of InvariantBroken, of which pytest marks each line with an E."""
    lines = [line[8:] for line in output.splitlines() if line.startswith("E  ") or line == "E"]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.rpartition("InvariantBroken: ")[2]


@pytest.mark.exhaustive
def test_the_report_of_the_page_is_what_the_test_of_the_page_prints(project: Path) -> None:
    status, output = run_pytest(project)
    assert status == 1, output
    (shown,) = blocks(CHAOS, "text")
    assert report_in(output) == shown


@pytest.mark.exhaustive
def test_the_mended_handler_passes(project: Path) -> None:
    (project / "shop" / "consumers.py").write_text((project / "shop" / "mended.py").read_text())
    status, output = run_pytest(project)
    assert status == 0, output


def test_the_page_names_each_fault() -> None:
    named = [re.sub(r":N$", "", name) for name in table(CHAOS, "The faults")]
    assert named == list(KINDS)
