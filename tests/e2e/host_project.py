"""A throwaway Django project with EMS installed from its wheel, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATE = Path(__file__).resolve().parent / "host"
PATIENCE_SECONDS = 300

# The oldest Python that each Django takes.
DJANGOS = {"5.2": (3, 11), "6.0": (3, 12)}


def python_for(django: str) -> str | None:
    """A Python that this Django takes and that runs here; None if there is none."""
    oldest = DJANGOS[django]
    if sys.version_info >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in (14, 13, 12) if (3, minor) >= oldest]
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"), reverse=True)
    # A shim on PATH may name a version that it then refuses to run.
    for python in [*filter(None, map(shutil.which, names)), *map(str, pyenv)]:
        test = f"import sys, venv, sqlite3; sys.exit(sys.version_info < {oldest})"
        if subprocess.run([python, "-c", test], capture_output=True).returncode == 0:
            return python
    return None


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    _pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("django_ems-*.whl")
    return wheel


def make_environment(folder: Path, django: str, wheel: Path) -> Path:
    """The Python of a new environment that holds this Django and the wheel."""
    python = python_for(django)
    assert python is not None
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
