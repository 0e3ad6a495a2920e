"""Configures the EMS project. The environment is read here and nowhere else.

A variable that is empty counts as not set.

DATABASE_URL           mysql://user:password@host:3306/name; default: SQLite in the state folder
REDIS_URL              redis://host:6379/0, also Celery's broker; default: none, then consumers
                       poll, and EMS is Celery's broker
SECRET_KEY             default: made once and kept in the state folder
ALLOWED_HOSTS          default: this machine
HTTPS                  on: browsers send the cookies over TLS only; default: off
CSRF_TRUSTED_ORIGINS   needed behind a proxy that ends TLS
DEBUG                  default: off
TIME_ZONE              what the admin shows; default: UTC
EMS_STATE_DIR          default: ems-state beside manage.py
EMS_ARCHIVE            folder or URL of the Spark jobs' archive; default: none
EMS_RETRY_DELAYS, EMS_POLL_SECONDS, EMS_DRAIN_SECONDS   default: those of EMS
"""

import contextlib
import os
import secrets
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import environ

env = environ.Env()
env.ENVIRON = {name: value for name, value in os.environ.items() if value}

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(env.str("EMS_STATE_DIR", default=str(BASE_DIR / "ems-state"))).absolute()
STATE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)


def _kept_secret(path: Path) -> str:
    """Return the secret in this file, which only its owner can read; make it at first."""
    if not path.exists():
        # Written to another file, then linked to this name: of several processes that start
        # together one makes the secret, and none reads a part of it.
        descriptor, draft = tempfile.mkstemp(dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(50))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        Path(draft).unlink()
    return path.read_text()


def _database() -> dict[str, Any]:
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(STATE_DIR / "ems.sqlite3"),
    }
    if "DATABASE_URL" in env.ENVIRON:
        database = env.db_url("DATABASE_URL")
    options = {
        # Writers wait for the file from the start of their transaction. Otherwise two that have
        # both read would fail with "database is locked".
        "django.db.backends.sqlite3": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
        "django.db.backends.mysql": {"charset": "utf8mb4"},
    }
    database["OPTIONS"] = options.get(database["ENGINE"], {}) | database.get("OPTIONS", {})
    return database


SECRET_KEY = env.str("SECRET_KEY", default="") or _kept_secret(STATE_DIR / "secret-key")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.str("REDIS_URL", default="")
CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
if REDIS_URL:
    CACHES["redis"] = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        # Never pickle, with which anyone who can write to Redis could run code here.
        "OPTIONS": {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
    }

EMS: dict[str, Any] = {
    "DATABASE": "default",
    "REDIS": "redis" if REDIS_URL else None,
    "STATE_DIR": STATE_DIR,
    "ARCHIVE": env.str("EMS_ARCHIVE", default="") or None,
}
if "EMS_RETRY_DELAYS" in env.ENVIRON:
    EMS["RETRY_DELAYS"] = env.list("EMS_RETRY_DELAYS", cast=float)
for _name in ("POLL_SECONDS", "DRAIN_SECONDS"):
    if f"EMS_{_name}" in env.ENVIRON:
        EMS[_name] = env.float(f"EMS_{_name}")

# Celery is optional: consumers run the time-driven steps themselves.
CELERY_BROKER_URL = REDIS_URL or "ems://"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
# The rows of beat come from "manage.py ems_sync_schedules", and can be changed in the admin.
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "streams",
    "monitoring",
    "emsproject.demo",
]
if find_spec("django_celery_beat"):
    INSTALLED_APPS.append("django_celery_beat")
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
ROOT_URLCONF = "emsproject.urls"
WSGI_APPLICATION = "emsproject.wsgi.application"
# The HTTP API takes messages of msgMaxSizeInBytes, also in Base64.
DATA_UPLOAD_MAX_MEMORY_SIZE = 6 * 1024 * 1024
STATIC_URL = "static/"
STATIC_ROOT = STATE_DIR / "static"

LANGUAGE_CODE = "en"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_TZ = True

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("HTTPS", default=False)
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
