"""Reads the option file, which says how the jobs reach the database, and where the archive is.

Only its path is sent to executors, in options and in the environment: passwords are never in a
plan, an argument list or Spark's pages. Its first part is what every MySQL client reads::

    [client]
    host=db.example.org
    user=ems
    password=...
    database=shop

    [ems]
    vendor=mysql
    archive=s3a://bucket/ems

A part ``[replica]`` says what is different about a server that messages are read from.

Topics on several databases need a folder with one file for each, named after its alias: clicks.cnf.
All but that of ``EMS["DATABASE"]`` say ``shard=clicks`` under [ems].
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from sparkjobs.errors import BadConfig

VARIABLE = "EMS_SPARK_CONFIG"

MYSQL, SQLITE = "mysql", "sqlite"

# The part of the file that says how the server for reading differs from that of [client].
REPLICA = "replica"
# In place of a namespace: all of them.
EVERY = "*"
# How the names of the option files in a folder end.
SUFFIX = ".cnf"
# As streams/conf.py has it. Statements have the namespace in them as it is.
NAMESPACE = re.compile(r"[a-z0-9._-]{0,16}")


@dataclass(frozen=True)
class Config:
    """The content of the option file, without the part that the MySQL client reads itself.

    ``path`` is the file, ``database`` the path of SQLite's file, ``archive`` a folder or URL,
    ``partitioner`` the dotted path of the project's own, if it has one; ``namespace`` is
    ``EMS["NAMESPACE"]``; with ``replica``, messages are read from another server; ``shard`` is the
    alias of the database, if it is not ``EMS["DATABASE"]``. Raises BadConfig if the namespace is
    none.
    """

    path: str
    vendor: str
    database: str = ""
    archive: str = ""
    partitioner: str = ""
    namespace: str = ""
    replica: bool = False
    shard: str = ""

    def __post_init__(self) -> None:
        if self.namespace != EVERY and not NAMESPACE.fullmatch(self.namespace):
            raise BadConfig(
                "namespace must be at most 16 of the characters a-z 0-9 . _ - (or *, to read all),"
                f" not {self.namespace!r}"
            )

    @property
    def prefix(self) -> str:
        """Return what the tables have before each name of the namespace: as streams/conf.py has."""
        return f" {self.namespace}/" if self.namespace not in ("", EVERY) else ""

    def own(self, name: str) -> str:
        """Return the name of a job or lock of this namespace, as monitoring/live/spark_jobs.py."""
        return f"{name} {self.namespace}" if self.prefix else name

    @property
    def alias(self) -> str:
        """Return the alias of the database: of a folder's files, their names are aliases."""
        return self.shard or Path(self.path).stem

    def everywhere(self) -> Config:
        """Return this configuration for all namespaces: names keep their prefixes then."""
        return replace(self, namespace=EVERY)

    @classmethod
    def load(cls, path: str = "") -> Config:
        """Read the file, by default the one that EMS_SPARK_CONFIG names; raises BadConfig."""
        path = _absolute(path)
        if Path(path).is_dir():
            raise BadConfig(f"{path} is a folder of option files: name one of them")
        parser = configparser.ConfigParser(allow_no_value=True, interpolation=None, strict=False)
        try:
            with Path(path).open() as file:
                parser.read_file(file)
        except (OSError, configparser.Error) as error:
            raise BadConfig(f"{path}: {error}") from error
        vendor = parser.get("ems", "vendor", fallback="")
        if vendor not in (MYSQL, SQLITE):
            raise BadConfig(f"{path}: [ems] vendor must be mysql or sqlite")
        database = parser.get("ems", "path", fallback="") or ""
        if vendor == SQLITE and not database:
            raise BadConfig(f"{path}: [ems] path must name the SQLite file")
        archive, partitioner, namespace, shard = (
            parser.get("ems", name, fallback="") or ""
            for name in ("archive", "partitioner", "namespace", "shard")
        )
        replica = parser.has_section(REPLICA)
        if replica and vendor == SQLITE:
            raise BadConfig(f"{path}: [{REPLICA}] is of MySQL and MariaDB; SQLite has none")
        return cls(path, vendor, database, archive, partitioner, namespace, replica, shard)

    @classmethod
    def load_all(cls, path: str = "") -> list[Config]:
        """Read the file, or all files of a folder, ``EMS["DATABASE"]`` first; raises BadConfig.

        ``path`` is by default what EMS_SPARK_CONFIG names.
        """
        path = _absolute(path)
        if not Path(path).is_dir():
            return [cls.load(path)]
        found = [cls.load(str(file)) for file in Path(path).glob(f"*{SUFFIX}")]
        found.sort(key=lambda config: (bool(config.shard), config.alias))
        if not found:
            raise BadConfig(f"{path} has no option file: their names end with {SUFFIX}")
        for config in found:
            if config.alias != Path(config.path).stem:
                raise BadConfig(
                    f"{config.path} says shard={config.shard}: name it {config.shard}{SUFFIX}"
                )
        # Two of them would write to the same folders of the archive.
        if len(unnamed := [config.path for config in found if not config.shard]) > 1:
            raise BadConfig(
                f"only the file of EMS['DATABASE'] has no shard= under [ems]: {', '.join(unnamed)}"
            )
        return found


def _absolute(path: str) -> str:
    """Return ``path``, or what EMS_SPARK_CONFIG names; raises BadConfig.

    Absolute, since executors have another working directory. Its symlinks stay: those of a mounted
    secret lead to a folder that has another name on each host.
    """
    if not (path := path or os.environ.get(VARIABLE, "")):
        raise BadConfig(f"name the option file: --config PATH, or {VARIABLE}")
    return str(Path(path).absolute())
