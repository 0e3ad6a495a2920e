"""Ends what takes too long in a test, as a failure of that test: the run goes on.

pytest-timeout keeps its alarm for the whole of a test. What it raises while pytest writes the
report, parsing files for it, is an error of pytest itself, which ends the run. Here the alarm is
set while the test works: its fixtures, its function, and their end, each as long as its limit.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from pytest_timeout import timeout_sigalrm

T = TypeVar("T")
# Of a test: what pytest-timeout has read of its marker, the command line and the configuration.
LIMIT = pytest.StashKey[Any]()
Phase = Generator[None, T, T]


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Set no alarm yet."""
    item.stash[LIMIT] = settings
    return True


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Phase[T]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Phase[T]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Phase[T]:
    return (yield from _limited(item))


def _limited(item: pytest.Item) -> Phase[T]:
    if (settings := item.stash.get(LIMIT, None)) is None:
        return (yield)
    before = signal.signal(signal.SIGALRM, lambda *_: timeout_sigalrm(item, settings))
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Phase[pytest.TestReport]:
    """Report what cannot be reported as a failure without its source."""
    try:
        return (yield)
    except Exception as error:  # noqa: BLE001 - whatever it is, it would end the run
        found = call.excinfo.exconly() if call.excinfo else ""
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"{found}\n(pytest cannot show it: {error!r})".lstrip(),
            when=call.when,  # type: ignore[arg-type]
            duration=call.duration,
            start=call.start,
            stop=call.stop,
        )
