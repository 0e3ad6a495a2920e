"""Makes a temporary Django project with EMS installed from its wheel, in a new environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import environments

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATE = Path(__file__).resolve().parent / "host"
PATIENCE_SECONDS = 300


def build_wheel(folder: Path) -> Path:
    """Build and return the wheel of this checkout."""
    _pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("django_ems-*.whl")
    return wheel


def make_environment(folder: Path, django: str, wheel: Path) -> Path:
    """Return the Python of a new environment with this Django and the wheel."""
    python = environments.python_for(django)
    # Without pip: it takes longest, and Debian has it in a package of its own.
    run(python, "-m", "venv", "--without-pip", folder)
    inside = folder / "bin" / "python"
    _pip("--python", inside, "install", "--no-compile", f"Django=={django}.*", wheel)
    return inside


class HostProject:
    """Made by ``startproject``, with the apps of host/ beside it."""

    def __init__(self, folder: Path, python: Path, variant: str) -> None:
        self.folder = folder
        self._python = python
        self._variant = variant
        run(python, "-m", "django", "startproject", "host", folder)
        shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
        self.manage("makemigrations", "streams", "monitoring")
        self.manage("migrate")

    @property
    def database(self) -> Path:
        return self.folder / "db.sqlite3"

    def manage(self, *words: str) -> str:
        """Run manage.py, every warning an error; returns what it prints."""
        env = {"DJANGO_SETTINGS_MODULE": "shop.settings", "HOST_VARIANT": self._variant}
        return run(self._python, "-W", "error", "manage.py", *words, cwd=self.folder, env=env)


def run(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program that knows nothing of this checkout or test run; it must succeed."""
    keep = {name: value for name, value in os.environ.items() if _is_foreign(name)}
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**keep, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def _is_foreign(name: str) -> bool:
    ours = ("EMS_", "DJANGO_", "PYTHON", "PYTEST_", "VIRTUAL_ENV")
    return not name.startswith(ours)


def _pip(*words: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", *words)
