"""Celery worker and beat of a scenario: ``celery -A tests.lab.scenarios.steps worker -B``."""

import os
from typing import Any

from celery import Celery

from streams.schedule import SCHEDULE

app: Any = Celery("scenarios")
app.conf.update(
    broker_url=os.environ["EMS_TEST_REDIS_URL"],
    broker_connection_retry_on_startup=True,
    beat_schedule=SCHEDULE,
    worker_hijack_root_logger=False,
)
app.autodiscover_tasks(["streams"])
