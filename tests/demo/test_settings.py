"""The project's settings: a variable that is empty is one that is not set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT

pytestmark = pytest.mark.any_database

PRINT = """\
import django
from django.conf import settings
django.setup()
print(settings.DATABASES["default"]["ENGINE"], settings.TIME_ZONE, settings.ALLOWED_HOSTS[0])
print(sorted(settings.EMS))
"""
VARIABLES = (
    *("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "ALLOWED_HOSTS", "HTTPS", "CSRF_TRUSTED_ORIGINS"),
    *("DEBUG", "TIME_ZONE", "EMS_ARCHIVE", "EMS_RETRY_DELAYS", "EMS_POLL_SECONDS"),
    "EMS_DRAIN_SECONDS",
)


def ran(env: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_the_project_starts_with_empty_variables_as_without_them(demo_env: dict[str, str]) -> None:
    unset = {name: value for name, value in demo_env.items() if name not in VARIABLES}
    empty = unset | dict.fromkeys(VARIABLES, "")
    assert "no issues" in ran(empty, "manage.py", "check")
    assert ran(empty, "-c", PRINT) == ran(unset, "-c", PRINT)
