"""Runs the servers that only the peers need: PostgreSQL, RabbitMQ, and a Redis that is durable.

All listen on 127.0.0.1 and are gone with their folders at the end, as those of tests/servers.py.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.packages import SEARCH_PATH, Unavailable, unpacked
from tests.servers import Redis, Server, free_port

# PostgreSQL refuses to run as root; then it runs as this user.
NOT_ROOT = "nobody"


class DurableRedis(Redis):
    """Flushes every write before it answers: the setting under which Redis loses nothing."""

    kind = "redis"

    def command(self) -> list[str]:
        return [*super().command(), "--appendonly", "yes", "--appendfsync", "always"]


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


class RabbitMQ(Server):
    kind = "rabbitmq"
    # Its own programs find each other under the path that they were built for.
    BUILT_FOR = "/usr/lib/erlang"
    _epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def prepare(self) -> None:
        usr = unpacked("rabbitmq") / "usr"
        erlang = usr / "lib/erlang"
        programs = self.folder / "bin"
        programs.mkdir()
        erl = programs / "erl"
        erl.write_text((erlang / "bin/erl").read_text().replace(self.BUILT_FOR, str(erlang)))
        erl.chmod(0o755)
        (self.folder / "rabbit.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        try:
            (self._server,) = usr.glob("lib/rabbitmq/lib/*/sbin/rabbitmq-server")
            (self._names,) = erlang.glob("erts-*/bin/epmd")
        except ValueError:
            raise Unavailable("the package rabbitmq-server is not laid out as expected") from None
        names, distribution = free_port(), free_port()
        self._epmd_port = str(names)
        env = {
            **os.environ,
            "HOME": str(self.folder),
            "PATH": f"{programs}:{erlang}/bin:{os.environ.get('PATH', os.defpath)}",
            "RABBITMQ_NODENAME": f"ems{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbit.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
            "ERL_EPMD_PORT": self._epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        self.special = {"env": env}

    def command(self) -> list[str]:
        return [str(self._server)]

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._epmd = subprocess.Popen(
                [self._names, "-address", "127.0.0.1", "-port", self._epmd_port],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        super().start()

    def answers(self, connection: Any) -> bool:
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        return bool(connection.recv(1))

    def stop(self) -> None:
        super().stop()
        if self._epmd is not None:
            self._epmd.terminate()
            self._epmd.wait()
