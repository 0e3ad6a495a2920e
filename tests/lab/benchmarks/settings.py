"""Configures one database and no Redis, as a project has it; otherwise as for the tests."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES = {"default": DATABASES["default"]}
