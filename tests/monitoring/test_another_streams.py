"""A project that has a package ``streams`` of its own is told so, and the way out works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT

pytestmark = pytest.mark.any_database

SETTINGS = """
INSTALLED_APPS = [
    "django.contrib.contenttypes", "django.contrib.auth", {own}"streams", "monitoring",
]
DATABASES = {{"default": {{
    "ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:",
    "OPTIONS": {{"transaction_mode": "IMMEDIATE"}},
}}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "of a test"
"""
MODEL = """
from django.db import models

class Video(models.Model):
    title = models.CharField(max_length=10)
"""
TABLES = "from django.apps import apps; print(apps.get_model('streams.Video')._meta.db_table)"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project with an app of its own that is called streams."""
    for name, content in {"__init__.py": "", "models.py": MODEL}.items():
        (tmp_path / "streams").mkdir(exist_ok=True)
        (tmp_path / "streams" / name).write_text(content)
    return tmp_path


def django(project: Path, own: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in the project, which comes first on the path as the folder of manage.py does."""
    (project / "project_settings.py").write_text(SETTINGS.format(own=own))
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import django; django.setup(); {code}"],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "project_settings",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_error_names_both_packages_and_what_to_do(project: Path) -> None:
    last = django(project, "", "").stderr.rstrip().splitlines()[-1]
    assert last.startswith("ImportError: Python finds another package 'streams'")
    assert f"in {project / 'streams'}, in the place of the one of EMS, in {ROOT}." in last
    assert "shop/streams/" in last


def test_a_module_of_that_name_is_found_too(project: Path) -> None:
    (project / "streams").rename(project / "other")
    (project / "streams.py").write_text("")
    assert f"in {project / 'streams.py'}," in django(project, "", "").stderr


def test_what_the_error_says_is_a_way_out(project: Path) -> None:
    (project / "shop").mkdir()
    (project / "shop" / "__init__.py").write_text("")
    (project / "streams").rename(project / "shop" / "streams")
    done = django(project, '"shop.streams", ', TABLES)
    assert (done.stdout, done.stderr) == ("streams_video\n", "")
