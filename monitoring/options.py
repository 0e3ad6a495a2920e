"""The option file that hands Django's database settings to a Spark job: never an argument or a
variable, which other users of the machine could read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

from streams.conf import settings

# Django's name of a parameter: that of the MySQL client's option.
CLIENT = {
    "host": "host",
    "port": "port",
    "unix_socket": "socket",
    "user": "user",
    "password": "password",
    "database": "database",
    "connect_timeout": "connect-timeout",
    "ssl_mode": "ssl-mode",
}


@contextmanager
def option_file(using: str) -> Iterator[Path]:
    """The path of a file only its owner can read; it is gone at the end."""
    descriptor, name = tempfile.mkstemp(prefix="ems-spark-", suffix=".cnf")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(options_of(using))
        yield Path(name)
    finally:
        Path(name).unlink()


def options_of(using: str) -> str:
    """What stands in the option file of this alias."""
    connection: Any = connections[using]
    given = connection.get_connection_params()
    if connection.vendor == "sqlite":
        path = Path(given["database"]).resolve()
        return _section("ems", {"vendor": "sqlite", "path": path, **_of_the_project()})
    client = {option: given.get(name) for name, option in CLIENT.items()}
    client |= {f"ssl-{name}": value for name, value in given.get("ssl", {}).items()}
    quoted = {name: _quoted(value) for name, value in client.items() if value is not None}
    default = given.get("read_default_file")
    return (
        _section("ems", {"vendor": "mysql", **_of_the_project()})
        # Before what is named here, which wins.
        + (f"!include {Path(default).resolve()}\n" if default else "")
        + _section("client", quoted)
    )


def _of_the_project() -> dict[str, Any]:
    """What the setting EMS says that a job needs."""
    return {"archive": _archive(), "partitioner": settings().PARTITIONER}


def _archive() -> str | None:
    archive = settings().ARCHIVE
    if archive is None:
        return None
    # A URL, or a folder: the job has another working directory.
    return str(archive) if "://" in str(archive) else str(Path(archive).resolve())


def _section(name: str, values: dict[str, Any]) -> str:
    lines = [f"{key}={value}\n" for key, value in values.items() if value is not None]
    return f"[{name}]\n{''.join(lines)}"


def _quoted(value: Any) -> str:
    """As the client reads it, whatever is in a password: # begins a comment, blanks are cut."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
