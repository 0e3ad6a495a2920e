"""Makes the Celery application: ``celery -A emsproject worker -B`` runs the steps of EMS."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "emsproject.settings")

app = Celery("emsproject")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
