"""Lets pytest run the suites of others with the settings of the tests."""

from __future__ import annotations

from tests.conftest import _steps_are_asked, quick_emptying
from tests.settings import FOLDER

__all__ = ["_steps_are_asked", "quick_emptying"]  # fixtures that every test uses


def pytest_configure() -> None:
    FOLDER.mkdir(mode=0o700, exist_ok=True)
