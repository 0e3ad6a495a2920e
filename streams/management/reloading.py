"""Restarts a command when the code changes, also after code that cannot be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.utils import autoreload

CHANGED = 3  # the exit status of a child whose code has changed
LOOK_SECONDS = 0.5


def run_reloading(main: Callable[..., Any], say: Callable[[str], None], **options: Any) -> None:
    """Run ``main`` in a child process, and in a new one after each change of the code.

    Django's reloader ends with a child that cannot load the code. This one waits for the next
    change: half of a change is often an error of syntax.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        autoreload.run_with_reloader(_ending(main), **options)
        return
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    files = _files()
    while True:
        # Before the child loads the code: what is changed meanwhile is not missed.
        loaded = dict(files.snapshot_files())
        try:
            status = subprocess.run(  # noqa: S603 - the command that the user has started
                autoreload.get_child_arguments(), env=environment, close_fds=False, check=False
            ).returncode
            if status == CHANGED:
                continue
            if status <= 0:  # it was stopped
                sys.exit(status)
            say(f"Ended with status {status}: waiting for a change of the code.")
            while dict(files.snapshot_files()) == loaded:
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            return


def _ending(main: Callable[..., Any]) -> Callable[..., None]:
    """Return ``main`` so that its error ends the process, and not only its thread."""

    def run(**options: Any) -> None:
        status = 1
        try:
            main(**options)
        except CommandError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        except BaseException:  # noqa: BLE001 - the parent says that it has ended
            traceback.print_exc()
        else:
            status = 0
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    return run


def _files() -> Any:
    """Return what watches the modules that are loaded, and all files of the apps.

    A module with an error of syntax is loaded nowhere.
    """
    files = autoreload.StatReloader()
    for config in apps.get_app_configs():
        if "site-packages" not in config.path:
            files.watch_dir(config.path, "**/*.py")
    return files
