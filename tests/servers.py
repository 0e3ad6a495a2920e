"""Runs private MariaDB, MySQL and Redis servers for tests and benchmarks. Standard library only.

Each server lives in a short folder of its own under /tmp (a socket path holds about 100
characters), or in memory where its caller does not measure; it listens on a free port of
127.0.0.1, accepts root without a password and is gone, folder and all, when its ``with`` block
ends::

    with running(["mariadb", "redis"]) as servers:
        servers["mariadb"].url          # mysql://root@127.0.0.1:41234/

packages.py finds the programs.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.packages import Programs, Unavailable, url_variable

DISK, MEMORY = Path("/tmp"), Path("/dev/shm")
MEMINFO = Path("/proc/meminfo")
PREFIX = "ems-"
ROOM_IN_MEMORY = 2 * 2**30  # bytes that must be free for each server

READY_SECONDS = 90
STOP_SECONDS = 20

# Small enough for a laptop, and durable as in production (a commit is flushed), so that tests and
# benchmarks show what a user gets.
COMMON_CNF = """\
[mysqld]
user={user}
datadir={folder}/data
tmpdir={folder}
socket={folder}/s
pid-file={folder}/pid
port={port}
bind-address=127.0.0.1
skip-name-resolve
skip-log-bin
character-set-server=utf8mb4
max_connections=300
max_allowed_packet=64M
innodb_buffer_pool_size=256M
innodb_flush_log_at_trx_commit=1
secure-file-priv={folder}
"""

# The eight hours make every mix-up of the session's zone with UTC visible.
MARIADB_CNF = """\
default-time-zone='+08:00'
"""

# Ids that step by three, as under Galera or group replication: nobody may count on lastrowid + 1.
MYSQL_CNF = """\
auto_increment_increment=3
mysqlx=OFF
innodb_redo_log_capacity=256M
"""

# For tests, as MySQL is installed by default, and with GTIDs. A file is deleted soon after the next
# one has begun. Benchmarks have none, and MariaDB has none by default.
BINARY_LOG_CNF = """\
log-bin=binlog
server-id=1
gtid_mode=ON
enforce_gtid_consistency=ON
max_binlog_size=16M
binlog_expire_logs_seconds=60
"""

# Over TCP root is '127.0.0.1', because names are not resolved.
INIT_SQL = """\
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
"""


class ServerFailed(Exception):
    """Says that a server did not start; the message ends with the last lines of its log."""


class Server:
    """Runs one private server process: ``prepare()``, ``start()``, ``wait()``, then ``stop()``."""

    kind = ""
    programs_of = ""  # another kind that has the same programs
    # What is passed to Popen beside the usual, such as another user or environment.
    special: dict[str, Any] = {}

    def __init__(self, programs: Programs, base: Path = DISK, *, for_tests: bool = False) -> None:
        self.programs = programs
        self.for_tests = for_tests
        self.folder = self._new_folder(base)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def prepare(self) -> None:
        """Write the configuration and the empty data folder."""

    def prepare_where_it_can_be(self) -> None:
        """Prepare; what fails in memory, which others may fill meanwhile, is repeated on disk."""
        try:
            self.prepare()
        except ServerFailed as failure:
            if self.folder.parent == DISK:
                raise
            print(f"{failure}\n{self.kind}: once more, on disk …", file=sys.stderr, flush=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = self._new_folder(DISK)
            self.prepare()

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self, connection: socket.socket) -> bool:
        """Tell whether the program that listens at our port uses our protocol."""
        # A MySQL server greets with a packet whose fifth byte is its protocol, 10; an error is 255.
        return connection.recv(5)[4:] == b"\x0a"

    def start(self) -> None:
        """Start the process. Call it in the main thread: see ``end_with_parent``."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*end_with_parent(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end the servers ourselves
                **self.special,
            )

    def wait(self) -> None:
        """Wait until the server accepts connections; raises ServerFailed if it does not."""
        give_up_at = time.monotonic() + READY_SECONDS
        while not self._ready():
            if self.process is None or self.process.poll() is not None:
                raise ServerFailed(f"{self.kind} ended at its start:\n{self.log_tail()}")
            if time.monotonic() > give_up_at:
                raise ServerFailed(f"{self.kind} is not ready in time:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process, by its pid, and remove its folder. Safe to call twice."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        """Return the errors of the log, which a long help text may follow, and its last lines."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        errors = [line for line in lines[:-20] if "error" in line.lower()]
        return "\n".join([*errors[:20], *lines[-20:]])

    def _new_folder(self, base: Path) -> Path:
        # With our process id: remove_leftovers() tells by it that nobody uses the folder any more.
        prefix = f"{PREFIX}{self.kind[:2]}-{os.getpid()}-"
        return Path(tempfile.mkdtemp(prefix=prefix, dir=base))

    def _ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                return self.answers(connection)
        except OSError:
            return False

    def _run(self, *command: str) -> None:
        # A folder of its own: two installations at a time would take the same temporary names.
        env = {**os.environ, "TMPDIR": str(self.folder)}
        with self.log.open("ab") as log:
            done = subprocess.run(command, env=env, stdout=log, stderr=log)
        if done.returncode:
            raise ServerFailed(f"{self.kind}: {command[0]} failed:\n{self.log_tail()}")

    def _options(self) -> list[str]:
        return [f"--defaults-file={self.folder}/my.cnf"]

    def _init_file(self) -> str:
        # Not in my.cnf: --initialize, which makes the tables it needs, would read it too.
        return f"--init-file={self.folder}/init.sql"

    def _write_cnf(self, special: str) -> None:
        common = COMMON_CNF.format(user=getpass.getuser(), folder=self.folder, port=self.port)
        where = self.programs.server_options()
        (self.folder / "my.cnf").write_text(common + special + where)
        (self.folder / "init.sql").write_text(INIT_SQL)


class MariaDB(Server):
    kind = "mariadb"

    def prepare(self) -> None:
        self._write_cnf(MARIADB_CNF)
        self._run(
            self.programs.program("mariadb-install-db"),
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--user={getpass.getuser()}",
            f"--datadir={self.folder}/data",
            *([f"--basedir={self.programs.root}/usr"] if self.programs.root else []),
        )

    def command(self) -> list[str]:
        return [self.programs.program("mariadbd"), *self._options(), self._init_file()]


class MariaDB11(MariaDB):
    """Is the MariaDB of Debian 13: innodb_snapshot_isolation is on by default."""

    kind = "mariadb-11"


class MySQL(Server):
    kind = "mysql"

    def prepare(self) -> None:
        # The last one of skip-log-bin and log-bin counts.
        self._write_cnf(MYSQL_CNF + (BINARY_LOG_CNF if self.for_tests else ""))
        self._run(self.programs.program("mysqld"), *self._options(), "--initialize-insecure")

    def command(self) -> list[str]:
        return [self.programs.program("mysqld"), *self._options(), self._init_file()]


class MySQLByPyMySQL(MySQL):
    """Is for the leg of the suite that runs with PyMySQL: each leg has a server to itself."""

    kind = "mysql-pymysql"
    programs_of = "mysql"


class Redis(Server):
    kind = "redis"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        options = f"--port {self.port} --bind 127.0.0.1 --appendonly no --dir {self.folder}"
        return [self.programs.program("redis-server"), *options.split(), "--save", ""]

    def answers(self, connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\n")
        return connection.recv(5) == b"+PONG"


class Given:
    """Names a server of the environment (EMS_TEST_…_URL), which is not started or stopped here."""

    def __init__(self, url: str) -> None:
        self.url = url


KINDS: dict[str, type[Server]] = {
    kind.kind: kind for kind in (MariaDB, MariaDB11, MySQL, MySQLByPyMySQL, Redis)
}


@contextlib.contextmanager
def running(
    kinds: list[str],
    *,
    unavailable: Callable[[str, Unavailable], None] | None = None,
    in_memory: bool = False,
) -> Iterator[dict[str, Server | Given]]:
    """Run servers of these kinds until the block ends. Call it in the main thread.

    A URL in the environment is used instead of a private server. An unavailable server raises
    Unavailable, or calls ``unavailable(kind, reason)`` and is left out. With ``in_memory``, for
    tests, their data are in /dev/shm where there is room: a flush of a commit then costs nothing.
    MySQL writes a binary log then.
    """
    remove_leftovers()
    base = memory_or_disk(len(kinds)) if in_memory else DISK
    found: dict[str, Server | Given] = {}
    own: list[Server] = []
    try:
        for kind in kinds:
            if url := os.environ.get(url_variable(kind)):
                found[kind] = Given(url)
                continue
            try:
                programs = Programs.find(KINDS[kind].programs_of or kind)
                own.append(KINDS[kind](programs, base, for_tests=in_memory))
            except Unavailable as reason:
                if unavailable is None:
                    raise
                unavailable(kind, reason)
            else:
                found[kind] = own[-1]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.prepare_where_it_can_be(), own))
        for server in own:
            server.start()
        for server in own:
            server.wait()
        yield found
    finally:
        for server in own:
            server.stop()


def memory_or_disk(servers: int) -> Path:
    """Return the folder for the data of this many servers: in memory, if there is room."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return DISK
    free = min(shutil.disk_usage(MEMORY).free, available_memory())
    return MEMORY if free >= servers * ROOM_IN_MEMORY else DISK


def available_memory() -> int:
    """Return how many bytes of memory processes may still take; /dev/shm is part of it."""
    with MEMINFO.open() as lines:
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    return int(kilobytes) * 1024


def remove_leftovers() -> None:
    """Remove the folders of processes that were killed: in memory they take it from the rest."""
    if not Path("/proc/self").exists():  # not Linux: no process can be looked up
        return
    for base in (DISK, MEMORY):
        for folder in base.glob(f"{PREFIX}??-*-*"):
            owner = folder.name.split("-")[2]
            if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago.

    It is below those that the kernel gives to outgoing connections (from 32768 on): one of them
    could take it before the server listens.
    """
    while True:
        port = random.randrange(20_000, 32_000)  # noqa: S311 - a port is not a secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def end_with_parent() -> list[str]:
    """Return words before a command with which it ends when its parent does, even by kill -9.

    Linux signals the child when the thread that started it ends: start it in the main thread.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
