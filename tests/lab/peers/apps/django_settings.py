"""Configures Django for the peers that are Django apps; PEER_APP says which."""

import os
from urllib.parse import urlsplit

_url = urlsplit(os.environ["PEER_URL"])
APP = os.environ["PEER_APP"]

SECRET_KEY = "peers"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "peers_" + APP,
        "HOST": _url.hostname,
        "PORT": _url.port,
        "USER": "root",
        "OPTIONS": {"charset": "utf8mb4"},
        "CONN_MAX_AGE": None,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = {
    "ems": ["streams", "tests.lab.peers.apps.ems_app"],
    "celery": ["streams"],
    "ems_tasks": ["streams", "streams.contrib.tasks", "tests.lab.peers.apps.tasks_app"],
    "tasks_db": ["django_tasks_db", "tests.lab.peers.apps.tasks_app"],
    "ox": ["django_ox", "tests.lab.peers.apps.tasks_app"],
}[APP]
# A lease as long as those of the other peers: see tests/lab/peers/__main__.py.
TASKS = {
    # As many attempts as django-ox has.
    "ems_tasks": {
        "default": {
            "BACKEND": "streams.contrib.tasks.EmsBackend",
            "OPTIONS": {"max_attempts": 10, "threads": 4},
        }
    },
    "tasks_db": {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    "ox": {
        "default": {
            "BACKEND": "django_ox.backend.OxBackend",
            "OPTIONS": {"LOCK_TIMEOUT": 15, "MAX_ATTEMPTS": 10},
        }
    },
}.get(APP, {})
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("PEER_REDIS", ""),
    }
}
EMS = {"REDIS": "default" if os.environ.get("PEER_REDIS") else None}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "ERROR"}}
