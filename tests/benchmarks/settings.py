"""As a project has it: one database, no Redis. Otherwise the settings of the tests."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES = {"default": DATABASES["default"]}
