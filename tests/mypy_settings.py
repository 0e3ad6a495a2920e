"""Configures Django for mypy: the settings of the project, with the apps of the tests."""

from emsproject.settings import *  # noqa: F403 - the settings of a module are its names
from emsproject.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "streams.contrib.tasks", "tests.hostapp", "tests.lab.scenarios"]
SCENARIO_ATOMIC = True
