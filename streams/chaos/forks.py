"""Runs work in a fork of this process, which may be killed at any point."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

from django.db import connections


def in_fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a fork of this process; return its exit status, as Popen would.

    0 means that it came to its end, -9 that it was killed. A fork is much quicker than a new
    process.
    """
    connections.close_all()  # two processes on one connection would mix up their packets
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        pid = os.fork()
    if not pid:
        _run_and_leave(work)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_and_leave(work: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this process is not pytest
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
