"""Configures the processes of a scenario: as the tests, with Redis and short retry delays."""

import os

from tests.settings import *  # noqa: F403
from tests.settings import EMS, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.lab.scenarios"]
EMS = {
    **EMS,
    "REDIS": "redis",
    "RETRY_DELAYS": [1.0],
    "POLL_SECONDS": 0.5,
    "DRAIN_SECONDS": 10.0,
    "HTTP_INSECURE": True,
}
SCENARIO_ATOMIC = "EMS_SCENARIO_PLAIN" not in os.environ
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"streams.supervisor": {"level": "INFO"}},
}
