"""Runs the server that only the peers need: PostgreSQL.

It listens on 127.0.0.1 and is gone with its folder at the end, as those of tests/servers.py.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.packages import SEARCH_PATH, unpacked
from tests.servers import Server

# PostgreSQL refuses to run as root; then it runs as this user.
NOT_ROOT = "nobody"


class PostgreSQL(Server):
    kind = "postgresql"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        self._bin, env = self._place()
        self.special = {"cwd": "/", "env": env}
        data = self.folder / "data"
        data.mkdir()
        if os.geteuid() == 0:
            self.folder.chmod(0o755)
            user = pwd.getpwnam(NOT_ROOT)
            os.chown(data, user.pw_uid, user.pw_gid)
            self.special["user"] = NOT_ROOT
        with self.log.open("ab") as log:
            subprocess.run(
                [f"{self._bin}/initdb", "--auth=trust", "--username=postgres", "-D", str(data)],
                check=True,
                stdout=log,
                stderr=log,
                **self.special,
            )

    def command(self) -> list[str]:
        data = self.folder / "data"
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "max_connections": 100}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return [f"{self._bin}/postgres", "-D", str(data), "-k", "", *words]

    def answers(self, connection: Any) -> bool:
        return not subprocess.run(
            [f"{self._bin}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)],
            env=self.special["env"],
        ).returncode

    def _place(self) -> tuple[Path, dict[str, str]]:
        """Return the folder of the programs, and the environment that they run in."""
        found = shutil.which("postgres", path=SEARCH_PATH)
        if found:
            return Path(found).resolve().parent, dict(os.environ)
        root = unpacked("postgresql")
        if os.geteuid() == 0:  # the other user cannot look into our cache
            root = Path(shutil.copytree(root, self.folder / "root", symlinks=True))
        (programs,) = root.glob("usr/lib/postgresql/*/bin")
        libraries = ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))
        return programs, {**os.environ, "LD_LIBRARY_PATH": libraries}
