"""Writes the option file with which a Spark job gets Django's database settings.

They are never in an argument or an environment variable, which other users of the machine could
read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

from streams.conf import settings
from streams.sharding import aliases, is_sharded

# Maps Django's names of connection parameters to the options of the MySQL client.
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


# How the names of the files in a folder end: sparkjobs/config.py reads these.
SUFFIX = ".cnf"
# Seconds after which one of several databases counts as away: it holds up the others for so long.
CONNECT_SECONDS = 10


@contextmanager
def option_folder(databases: Sequence[str]) -> Iterator[Path]:
    """Yield the path of a folder with a file for each alias; delete all of it at the end."""
    with tempfile.TemporaryDirectory(prefix="ems-spark-") as name:  # mode 0700
        for using in databases:
            path = Path(name, f"{using}{SUFFIX}")
            path.touch(mode=0o600)
            path.write_text(options_of(using))
        yield Path(name)


@contextmanager
def option_file(using: str) -> Iterator[Path]:
    """Yield the path of a file that only its owner can read; delete the file at the end."""
    descriptor, name = tempfile.mkstemp(prefix="ems-spark-", suffix=".cnf")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(options_of(using))
        yield Path(name)
    finally:
        Path(name).unlink()


def options_of(using: str) -> str:
    """Return the content of the option file for this alias."""
    connection: Any = connections[using]
    given = connection.get_connection_params()
    if connection.vendor == "sqlite":
        path = Path(given["database"]).resolve()
        return _section("ems", {"vendor": "sqlite", "path": path, **_of_the_project(using)})
    client = {option: given.get(name) for name, option in CLIENT.items()}
    client |= {f"ssl-{name}": value for name, value in given.get("ssl", {}).items()}
    quoted = {name: _quoted(value) for name, value in client.items() if value is not None}
    default = given.get("read_default_file")
    return (
        _section("ems", {"vendor": "mysql", **_of_the_project(using)})
        # Values of later sections are stronger than those of earlier ones.
        + (_section("client", {"connect-timeout": CONNECT_SECONDS}) if is_sharded() else "")
        + (f"!include {Path(default).resolve()}\n" if default else "")
        + _section("client", quoted)
    )


def _of_the_project(using: str) -> dict[str, Any]:
    """Return what a job needs of the setting EMS."""
    return {
        "shard": using if using in aliases()[1:] else None,
        "archive": _archive(),
        "partitioner": settings().PARTITIONER,
        "namespace": settings().NAMESPACE or None,
    }


def _archive() -> str | None:
    archive = settings().ARCHIVE
    if archive is None:
        return None
    # A URL stays as it is; a folder becomes absolute, since the job has another working directory.
    return str(archive) if "://" in str(archive) else str(Path(archive).resolve())


def _section(name: str, values: dict[str, Any]) -> str:
    lines = [f"{key}={value}\n" for key, value in values.items() if value is not None]
    return f"[{name}]\n{''.join(lines)}"


def _quoted(value: Any) -> str:
    """Quote a value for the client, for which # begins a comment and blanks at the ends are cut."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
