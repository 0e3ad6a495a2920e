"""Runs each Spark job in its own process, since a Spark session must never cross a fork."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings

from monitoring import java
from monitoring.options import SUFFIX, option_file, option_folder
from streams.conf import database, make_sure_enabled
from streams.errors import ConfigurationError
from streams.sharding import aliases, is_sharded

VARIABLE = "EMS_SPARK_CONFIG"
LOOK_SECONDS = 0.2
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

Say = Callable[[str], None]


def run(
    job: str,
    words: Sequence[str],
    using: str | None,
    *,
    seconds: int,
    say: Say,
    drains: bool = False,
) -> int:
    """Run ``python -m sparkjobs JOB …`` on the alias; return its exit status, 0 if it is done.

    Without an alias it runs on all that have topics, in one process; one that is away fails its
    part only. Raises ConfigurationError if the project's own option files lack one of them.
    ``say`` is called with each line that the job prints. The job may take ``seconds``; it keeps
    this limit itself, also when this process is killed. An error here ends the job, too. A job
    that ``drains`` gets the SIGTERM of this process, also when this process is killed. Raises
    Disabled where EMS is off.
    """
    make_sure_enabled()
    with _options(using) as path:
        with subprocess.Popen(  # noqa: S603 - our own module, and words without a shell
            [java.python(), "-u", "-m", "sparkjobs", "--seconds", str(seconds), job, *words],
            env={**os.environ, VARIABLE: str(path), "PYTHONPATH": _python_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches this process only, which then ends the job, and with it its JVM.
            start_new_session=True,
            preexec_fn=end_with_parent if drains and sys.platform == "linux" else None,
        ) as process:
            if drains:
                signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
            try:
                for line in _lines(process):
                    say(line)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        status = process.returncode
    if status == -signal.SIGALRM and seconds:
        say(f"{job} took longer than {seconds:.0f} s and was ended.")
    return status


def start(job: str, using: str, *, seconds: int) -> int:
    """Start ``ems_spark JOB`` as a process that outlives this one; return its process id.

    What comes of it is in the table of runs.
    """
    words = ["-m", "django", "ems_spark", job, "--database", using, "--seconds", str(seconds)]
    process = subprocess.Popen(  # noqa: S603 - our own command, and words without a shell
        [sys.executable, *words],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": str(settings.SETTINGS_MODULE),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Nobody waits for it here, but its end must be taken note of, or it stays as a zombie.
    threading.Thread(target=process.wait, name="ems-job", daemon=True).start()
    return process.pid


def end_with_parent() -> None:
    """Let the kernel send SIGTERM to this child when its parent ends, even if that is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def _options(using: str | None) -> Iterator[Path]:
    """Yield the option file or folder: the project's own, or one for this run.

    On a cluster the files must be on every host, which those that are written here are not.
    """
    if using is None and is_sharded():
        chosen: tuple[str, ...] = aliases()
    else:
        chosen = (using or database(),)
    if own := _own(chosen):
        yield own
    elif len(chosen) > 1:
        with option_folder(chosen) as path:
            yield path
    else:
        with option_file(chosen[0]) as path:
            yield path


def _own(chosen: Sequence[str]) -> Path | None:
    """Return the file or folder that EMS_SPARK_CONFIG names; None if it is not about these aliases.

    A file is about the alias of EMS, a folder about the shards, too. Raises ConfigurationError.
    """
    if not (named := os.environ.get(VARIABLE)):
        return None
    path = Path(named).absolute()
    if not path.is_dir():
        if len(chosen) > 1:
            raise ConfigurationError(
                f"{VARIABLE} names one file: name a folder with a file for each of"
                f" {', '.join(chosen)}."
            )
        return path if chosen[0] == database() else None
    if not set(chosen) <= set(aliases()):
        return None
    files = [path / f"{alias}{SUFFIX}" for alias in chosen]
    if lacking := [str(file) for file in files if not file.exists()]:
        raise ConfigurationError(f"There is no option file {', '.join(lacking)}.")
    return path if len(files) > 1 else files[0]


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines that the job prints until it ends.

    The end of the pipe does not tell the end: processes of the job may hold it for longer.
    """
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    begun = b""
    while True:
        if select.select([process.stdout], [], [], LOOK_SECONDS)[0]:
            read = os.read(process.stdout.fileno(), 65536)
            *lines, begun = (begun + read).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if read:
                continue
        elif process.poll() is None:
            continue
        if begun:
            yield begun.decode(errors="replace")
        process.wait()
        return


def _python_path() -> str:
    """Return a PYTHONPATH with which the job finds sparkjobs where this process does."""
    spec = find_spec("sparkjobs")
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - shipped with us
    ours = str(Path(spec.origin).parent.parent)
    return os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
