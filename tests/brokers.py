"""Runs the brokers of the relays and of the peers: RabbitMQ, and a Redis that is durable.

They listen on 127.0.0.1 and are gone with their folders at the end, as those of tests/servers.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

from tests.packages import Unavailable, unpacked
from tests.servers import Redis, Server, free_port

# Of a message in RabbitMQ.
LARGEST_BYTES = 1024 * 1024


class Killable(Server):
    """A server that may be killed and started again with the same data."""

    def kill(self) -> None:
        """Kill it, with the processes that it has started; they are in a session of their own."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)


class DurableRedis(Redis, Killable):
    """Flushes every write before it answers: the setting under which Redis loses nothing."""

    kind = "redis"

    def command(self) -> list[str]:
        return [*super().command(), "--appendonly", "yes", "--appendfsync", "always"]


class RabbitMQ(Killable):
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
        (self.folder / "rabbit.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nmax_message_size = {LARGEST_BYTES}\n"
        )
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
        if self._epmd is None:
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
