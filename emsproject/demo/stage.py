"""Gives the demo its own folder, so that it changes no other data."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from django.conf import settings
from django.db import connections

from emsproject.demo.interruption import Interrupted, hold_back

# Variables that a user may have set for another project.
IGNORED = {
    "DATABASE_URL",
    "REDIS_URL",
    "ALLOWED_HOSTS",
    "CSRF_TRUSTED_ORIGINS",
    "DEBUG",
    "EMS_POLL_SECONDS",
}
# Retry delays in seconds, short so that the demo need not wait.
RETRY_DELAYS = "0.2,0.5,1"


def enter() -> NoReturn:
    """Start this command again, in this process, with the settings of a fresh folder."""
    hold_back()  # without it, an early Ctrl-C would leave the folder
    folder = tempfile.mkdtemp(prefix="ems-demo-")
    environment = {name: value for name, value in os.environ.items() if name not in IGNORED}
    environment |= {
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        "EMS_STATE_DIR": folder,
        "EMS_RETRY_DELAYS": RETRY_DELAYS,
        "EMS_DRAIN_SECONDS": "10",
    }
    words = [sys.executable, str(settings.BASE_DIR / "manage.py"), *sys.argv[1:]]
    sys.stdout.flush()
    os.execve(sys.executable, [*words, "--folder", folder], environment)  # noqa: S606 - no shell


@contextmanager
def folder_of_its_own(path: Path) -> Iterator[None]:
    """Remove the folder at the end; after an error it stays, with what the processes printed."""
    try:
        yield
    except Interrupted:
        _remove(path)
        raise
    except BaseException:
        sys.stderr.write(f"The database and the logs of the demo are kept in {path}\n")
        raise
    _remove(path)


def _remove(path: Path) -> None:
    connections.close_all()
    shutil.rmtree(path)
