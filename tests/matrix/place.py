"""Makes the environment of a Python and a Django, and uses the wheel in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests import environments, pythons
from tests.docs.reader import Reader, do_all
from tests.e2e.host_project import PATIENCE_SECONDS, ROOT, run
from tests.matrix.cells import NEXT, SQLITE, Cell

HERE = Path(__file__).resolve().parent
LANGUAGES = ("en", "de", "zh-hans")
# The pages whose examples are run: their tests need no Spark and no Celery.
GUIDES = (
    *("extending", "handlers", "ordering", "rates", "readme", "relays", "tasks", "telemetry"),
    *("testing", "two_phase", "typed_bodies"),
)
# What these tests need beside the wheel and its extras.
TOOLS = (
    *("pytest>=8.3", "pytest-django>=4.14", "pytest-timeout>=2.3", "time-machine>=2.16"),
    *("msgspec>=0.19", "opentelemetry-sdk>=1.27"),
)
EXTRAS = "redis,tasks,metrics,otel,api,relay,demo"
NOT_COPIED = ("streams/", "monitoring/", "sparkjobs/")

SETTINGS = '''\
"""The settings of the reader, on the server of this cell, in the language of the browser."""

{driver}from shopsite.settings import *  # noqa: F403
from shopsite.settings import MIDDLEWARE

MIDDLEWARE = [*MIDDLEWARE]
at = MIDDLEWARE.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
MIDDLEWARE.insert(at, "django.middleware.locale.LocaleMiddleware")
'''
AS_MYSQLDB = """\
import pymysql

pymysql.install_as_MySQLdb()
"""


class Unusable(Exception):
    """Says that this Python and Django cannot be brought together here."""


class Place:
    """Has an environment with a Python, a Django, the wheel and both drivers."""

    def __init__(self, folder: Path, django: str, python: str, wheel: Path) -> None:
        self._wheel = wheel
        self._django = f"Django=={django}.*" if django != NEXT else f"Django>={django}.dev0"
        self.python = folder / "bin" / "python"
        self._has_tools = False
        found = pythons.find(python)
        if not found:
            raise Unusable(f"no Python {python}")
        run(found, "-m", "venv", "--without-pip", folder)
        self._install(wheel, "mysqlclient>=2.2.1", "PyMySQL[rsa]>=1.2", said=self._django)

    def versions(self) -> dict[str, str]:
        """Return the versions of what is installed."""
        code = (
            "from importlib.metadata import version as v; import platform, sqlite3;"
            "print(platform.python_version(), v('django'), sqlite3.sqlite_version,"
            " v('mysqlclient'), v('pymysql'))"
        )
        found = run(self.python, "-c", code).split()
        return dict(
            zip(("Python", "Django", "SQLite", "mysqlclient", "PyMySQL"), found, strict=True)
        )

    def use(self, cell: Cell, folder: Path, url: str) -> tuple[int, int]:
        """Do the tutorial, and open the pages; return the numbers of both."""
        driver = AS_MYSQLDB if cell.driver == "pymysql" else ""
        text = SETTINGS.format(driver=driver)
        name = f"test_ems_matrix_{os.getpid()}"  # the server may be one that the developer uses
        if cell.server != SQLITE:
            text += f'DATABASES = {{"default": {database(url, name)!r}}}\n'
        (folder / "cell.py").write_text(text)
        env = {"DJANGO_SETTINGS_MODULE": "cell", **environments.driver_environment()}
        reader = Reader(folder, self.python, env, PATIENCE_SECONDS)
        with fresh_database(url, name), closing(reader):
            steps = do_all(reader)
            shutil.copy(HERE / "crawl.py", folder)
            crawl = (self.python, "crawl.py")
            pages = sum(int(run(*crawl, one, cwd=folder, env=env).split()[-1]) for one in LANGUAGES)
        return steps, pages

    def run_guides(self, cell: Cell, folder: Path, url: str) -> int:
        """Run the examples of the guides; return their number."""
        self._add_tools()
        copy_without_packages(folder)
        env = {**environments.driver_environment(), "EMS_TEST_DB": vendor(cell.server)}
        env["EMS_TEST_DRIVER"] = cell.driver
        if url:
            env[f"EMS_TEST_{vendor(cell.server).upper()}_URL"] = url
        tests = [f"tests/docs/test_{name}.py" for name in GUIDES]
        said = run(
            self.python,
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--create-db"),
            *tests,
            cwd=folder,
            env=env,
        )
        found = re.search(r"(\d+) passed", said)
        if not found or "streams" in {path.name for path in folder.iterdir()}:
            raise AssertionError(said)
        return int(found[1])

    def _add_tools(self) -> None:
        if not self._has_tools:
            self._install(f"{self._wheel}[{EXTRAS}]", *TOOLS, said=self._django)
            self._has_tools = True

    def _install(self, *what: str | Path, said: str) -> None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq")
        words = ("--python", self.python, "install", "--no-compile")
        try:
            run(*pip, *words, said, *what, env=environments.compiler_environment())
        except AssertionError as failure:
            raise Unusable(str(failure)) from failure


def vendor(server: str) -> str:
    return server.partition("-")[0]


def database(url: str, name: str) -> dict[str, Any]:
    """Return the settings of a database on the server."""
    given = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": name,
        "USER": given.username or "root",
        "PASSWORD": given.password or "",
        "HOST": given.hostname,
        "PORT": str(given.port),
    }


def version_of(url: str) -> dict[str, str]:
    """Return the kind of the server and its version; empty without a URL."""
    if not url:
        return {}
    with connected(url) as connection:
        said = str(connection.get_server_info())
    found = re.search(r"(\d+\.\d+\.\d+)(-MariaDB)", said) or re.search(r"(\d+\.\d+\.\d+)", said)
    return {"MariaDB" if "MariaDB" in said else "MySQL": found[1] if found else said}


def connected(url: str) -> Any:
    """Open a connection to the server, for a with block that closes it."""
    import MySQLdb

    given = urlsplit(url)
    return closing(
        MySQLdb.connect(
            host=given.hostname,
            port=given.port or 3306,
            user=given.username or "root",
            password=given.password or "",
        )
    )


class fresh_database:  # noqa: N801 - it reads as a function
    """Creates a database on the server, and drops it in the end; with an empty URL nothing."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name

    def __enter__(self) -> None:
        self._say(f"DROP DATABASE IF EXISTS `{self._name}`")
        self._say(f"CREATE DATABASE `{self._name}` CHARACTER SET utf8mb4")

    def __exit__(self, *error: object) -> None:
        self._say(f"DROP DATABASE IF EXISTS `{self._name}`")

    def _say(self, statement: str) -> None:
        if self._url:
            with connected(self._url) as connection:
                connection.query(statement)


def copy_without_packages(folder: Path) -> None:
    """Copy the tests and pages of the checkout, without what the wheel brings."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(NOT_COPIED) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
