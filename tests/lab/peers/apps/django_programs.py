"""The Django apps among the peers: EMS, django-tasks-db and django-ox, on MySQL."""

from __future__ import annotations

import os

import django

from tests.lab.peers.apps.common import main, run_worker
from tests.lab.peers.apps.databases import make

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.lab.peers.apps.django_settings"
APP = os.environ["PEER_APP"]


def work(kind: str) -> None:
    words = {
        "ems": ["ems_consume", "--group", kind],
        "ems_tasks": ["ems_consume"],
        "tasks_db": ["db_worker", "--no-startup-delay"],
        "ox": ["ox_worker"],
    }[APP]
    run_worker("-m", "django", *words)


django.setup()
if APP == "ems":
    from streams import send

    main(lambda message: send("peers", message), work, make)
else:
    from tests.lab.peers.apps.tasks_app.tasks import note

    main(note.enqueue, work, make)
