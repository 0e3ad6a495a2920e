"""Does a job on several databases in turn: one that is away does not keep the others from it."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from sparkjobs.config import Config
from sparkjobs.errors import SparkJobsError


def each(job: str, configs: Sequence[Config], work: Callable[[Config], int]) -> int:
    """Call ``work`` for each database; return the highest exit status.

    An error is raised if there is one database only. Of several, each error is printed and has the
    status 1, and what is printed begins with the alias.
    """
    if len(configs) == 1:
        return work(configs[0])
    status = 0
    for config in configs:
        with speaking_of(config):
            try:
                status = max(status, work(config))
            except SparkJobsError as error:
                print(f"{job}: {error}", file=sys.stderr, flush=True)
                status = max(status, 1)
            except Exception as error:  # noqa: BLE001 - of Spark, the driver, py4j or ours
                traceback.print_exception(error)
                print(f"{job}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                status = max(status, 1)
    return status


@contextmanager
def speaking_of(config: Config) -> Iterator[None]:
    """Put the alias of the database before each line that is printed in the block."""
    out, err = (_Named(config.alias, stream) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


class _Named(io.TextIOBase):
    """A stream whose lines have a name before them."""

    def __init__(self, name: str, to: TextIO) -> None:
        self._before = f"{name}: "
        self._to = to
        self._begins = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self._to.write(self._before + line if self._begins else line)
            self._begins = line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        self._to.flush()
