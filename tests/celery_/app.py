"""Makes a Celery application like a host project's, with its own keys on the tests' Redis."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from streams.schedule import SCHEDULE


def configured() -> Celery:
    app: Any = Celery("tests")
    app.conf.update(
        broker_url=os.environ["EMS_TEST_REDIS_URL"],
        # Others use the same Redis.
        broker_transport_options={"global_keyprefix": os.environ["EMS_TEST_CELERY_PREFIX"]},
        broker_connection_retry_on_startup=True,
        beat_schedule=SCHEDULE,
        worker_hijack_root_logger=False,
    )
    app.autodiscover_tasks(["streams"])
    return app
