"""Starts, watches and ends the child processes of the demo, by their pid."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from emsproject.demo.interruption import Interruption
from monitoring.jobs import end_with_parent

# More than EMS_DRAIN_SECONDS (stage.py), after which a consumer ends by itself.
PATIENCE_SECONDS = 15.0
LOOK_SECONDS = 0.02
LAST_LINES = 15


class ChildEnded(Exception):
    """A process of the demo has ended by itself."""


def manage(*words: str) -> list[str]:
    """Return what Python is given to run a command of ``manage.py``."""
    return [str(settings.BASE_DIR / "manage.py"), *words]


def celery(*words: str) -> list[str]:
    """Return what Python is given to run a command of Celery."""
    return ["-m", "celery", "--workdir", str(settings.BASE_DIR), "-A", "emsproject", *words]


class Child:
    """A process of Python; what it prints goes into a file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - only words of the demo itself
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the demo only, which then ends its children in order.
                start_new_session=True,
                preexec_fn=end_with_parent if sys.platform == "linux" else None,
            )

    @property
    def status(self) -> int | None:
        """Return its exit status; None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Check that it still runs; raises ChildEnded."""
        if self.status is not None:
            lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise ChildEnded("\n".join([f"{self.name} ended with status {self.status}:", *lines]))

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """Kill it if it still runs, and wait for its end."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running(
    commands: Mapping[str, Sequence[str]], folder: Path, interruption: Interruption
) -> Iterator[list[Child]]:
    """Start a child for each command; end all of them at the end, also after an exception."""
    children: list[Child] = []
    try:
        for name, command in commands.items():
            children.append(Child(name, command, folder))
        yield children
    finally:
        stop(children, interruption)


def stop(children: Sequence[Child], interruption: Interruption) -> None:
    """Let all finish what they are doing; at a second interruption, kill them."""
    for child in children:
        child.terminate()
    limit = time.monotonic() + PATIENCE_SECONDS
    while any(child.status is None for child in children):
        if time.monotonic() > limit or interruption.times > 1:
            for child in children:
                child.kill()
        time.sleep(LOOK_SECONDS)
