"""Configures Django for the tests: one database server, chosen by the environment.

EMS_TEST_DB            sqlite (default), mariadb or mysql
EMS_TEST_MARIADB_URL   mysql://user:password@host:port/ and so on: dev.py sets these
EMS_TEST_MYSQL_URL
EMS_TEST_DRIVER        pymysql: PyMySQL in the place of mysqlclient
EMS_TEST_OTHER_URL     another server, or another way to it, for the alias `other`
EMS_TEST_REDIS_URL     without it the tests marked redis are left out
EMS_TEST_RUN           part of the test databases' names; default: this process' id, so that two
                       runs may share a server. Name it, and pytest's --reuse-db works

The fixture ``process_env`` sets these for child processes:

EMS_TEST_DB_NAME       the test database itself, which exists already
EMS_TEST_FOLDER        the folder of this run: SQLite's files, EMS's state
EMS_TEST_EMS           keys of EMS that a test has changed, as JSON
EMS_TEST_TASKS         TASKS of Django's tasks framework that a test has set, as JSON
EMS_TEST_PAGES         no: the pages of the admin are not imported, which takes a quarter of
                       the start; the fixture ``spawn`` sets it
"""

import json
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

VENDOR = os.environ.get("EMS_TEST_DB", "sqlite")
if os.environ.get("EMS_TEST_DRIVER") == "pymysql":
    # As docs/reference/versions.md says it to projects.
    import pymysql

    pymysql.install_as_MySQLdb()
RUN = os.environ.get("EMS_TEST_RUN", str(os.getpid()))


# conftest.py makes and removes this folder, since mypy also imports the settings.
FOLDER = Path(os.environ.get("EMS_TEST_FOLDER") or f"{tempfile.gettempdir()}/ems-{RUN}")


def _database(suffix: str = "") -> dict[str, Any]:
    """Return the settings of one alias; ``suffix`` is added to the name of its database."""
    given = os.environ.get("EMS_TEST_DB_NAME")
    # Django creates test_…; in a child process it exists and is the database to connect to.
    name = f"{given or f'test_ems_{RUN}'}{suffix}"
    if VENDOR == "sqlite":
        path = str(FOLDER / f"{name}.sqlite3")  # a file: processes must be able to share it
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
            "TEST": {"NAME": path},
        }
    elsewhere = os.environ.get("EMS_TEST_OTHER_URL") if suffix else None
    url = urlsplit(elsewhere or os.environ[f"EMS_TEST_{VENDOR.upper()}_URL"])
    unix_socket = parse_qs(url.query).get("unix_socket", [""])[0]
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": name if given else name.removeprefix("test_"),
        "USER": unquote(url.username or "root"),
        "PASSWORD": unquote(url.password or ""),
        "HOST": unix_socket or url.hostname or "127.0.0.1",
        "PORT": str(url.port or ""),
        "OPTIONS": {"charset": "utf8mb4"},
        "TEST": {"NAME": name, "CHARSET": "utf8mb4"},
    }


# `other` is another database on the same server, for what depends on the alias.
DATABASES = {"default": _database(), "other": _database("_other")}

CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
if redis_url := os.environ.get("EMS_TEST_REDIS_URL"):
    CACHES["redis"] = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": redis_url,
        "OPTIONS": {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
    }


def ems() -> dict[str, Any]:
    """Return EMS's own settings, for the environment as it is now."""
    return {
        "STATE_DIR": str(FOLDER / "state"),
        **json.loads(os.environ.get("EMS_TEST_EMS", "{}")),
    }


# Without Redis, as a first user has it; a test that wants it says ems_settings(REDIS="redis").
EMS = ems()

INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig"
    if os.environ.get("EMS_TEST_PAGES") == "no"
    else "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "streams",
    "monitoring",
    "tests.hostapp",
]
if find_spec("django.tasks") or find_spec("django_tasks"):
    INSTALLED_APPS.append("streams.contrib.tasks")
    if tasks := os.environ.get("EMS_TEST_TASKS"):
        TASKS = json.loads(tasks)
if find_spec("django_celery_beat"):
    INSTALLED_APPS.append("django_celery_beat")
    MIGRATION_MODULES = {"django_celery_beat": None}  # its tables as they stand: much quicker
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
# Django 6.1 warns of a mail without it; the others do not know it.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
ROOT_URLCONF = "emsproject.urls"
DATA_UPLOAD_MAX_MEMORY_SIZE = 6 * 1024 * 1024
STATIC_URL = "static/"
SECRET_KEY = "only-for-tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
