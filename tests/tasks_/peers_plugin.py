"""Lets pytest run the suites of others with the settings of the tests."""

from __future__ import annotations

from tests.settings import FOLDER


def pytest_configure() -> None:
    FOLDER.mkdir(mode=0o700, exist_ok=True)
