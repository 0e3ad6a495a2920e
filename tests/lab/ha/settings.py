"""Configures the processes of a failover: as the tests, with short waits and retries."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, EMS, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.lab.ha"]
EMS = {**EMS, "RETRY_DELAYS": [1.0], "POLL_SECONDS": 0.5, "DRAIN_SECONDS": 10.0}
# As docs/guides/failover.md says: a server that has vanished without a word is noticed.
DATABASES["default"].setdefault("OPTIONS", {}).update(
    {"connect_timeout": 5, "read_timeout": 20, "write_timeout": 20}
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "{created:.2f} {levelname} {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"streams.supervisor": {"level": "INFO"}},
}
