"""Clusters of real servers: semi-synchronous, group and asynchronous replication.

Each has a primary, and does what an orchestrator does: it promotes another server when the primary
has failed, or switches over to it while all is well.
"""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import MySQLdb
from MySQLdb.cursors import DictCursor

from tests.packages import Programs
from tests.processes import wait_for
from tests.servers import INIT_SQL, MariaDB, MySQL, Server, free_port, memory_or_disk

PROMOTION_SECONDS = 120
CLOSING_SECONDS = 1
LOCK_WAIT_TIMEOUT = 1205
DATABASE = "failover"
NEVER_MS = 4_294_967_295  # the longest that semi-sync can be told to wait for its replica

BOTH = """\
server-id={number}
log-bin=binlog
sync_binlog=1
log-{replica}-updates=ON
report-host=127.0.0.1
report-port={port}
relay-log=relay
"""
GTIDS = """\
gtid_mode=ON
enforce_gtid_consistency=ON
plugin-load-add=semisync_source.so
plugin-load-add=semisync_replica.so
"""
GROUP = """\
plugin-load-add=group_replication.so
loose-group_replication_group_name={group}
loose-group_replication_start_on_boot=OFF
loose-group_replication_local_address=127.0.0.1:{local}
loose-group_replication_group_seeds={seeds}
loose-group_replication_ip_allowlist=127.0.0.1
loose-group_replication_recovery_get_public_key=ON
"""
# root may write where read_only is ON; a project's user may not.
APP_SQL = f"""\
CREATE USER IF NOT EXISTS 'app'@'127.0.0.1';
GRANT ALL ON {DATABASE}.* TO 'app'@'127.0.0.1';
GRANT BINLOG ADMIN ON *.* TO 'app'@'127.0.0.1';
"""


class Node(MySQL):
    """Is one MySQL of a cluster."""

    extra = ""

    def _write_cnf(self, special: str) -> None:
        super()._write_cnf(special + self.extra)
        # Each server has its users by itself: what is not replicated cannot wait for a replica.
        (self.folder / "init.sql").write_text(f"SET SESSION sql_log_bin = 0;\n{INIT_SQL}")


class MariaNode(MariaDB):
    """Is one MariaDB of a cluster."""

    extra = ""

    def _write_cnf(self, special: str) -> None:
        super()._write_cnf(special + self.extra)
        (self.folder / "init.sql").write_text(f"SET SESSION sql_log_bin = 0;\n{INIT_SQL}{APP_SQL}")


class Cluster:
    """``with SemiSync() as cluster:`` starts the servers; leave it, and they are gone."""

    vendor = "mysql"
    # As whom the project's processes come.
    user = "root"
    size = 2
    # Whether what was acknowledged survives the loss of the primary.
    lossless = True

    def __init__(self) -> None:
        self.nodes: list[Server] = self._make()
        self.primary = self.nodes[0]

    def _make(self) -> list[Server]:
        base = memory_or_disk(self.size)
        nodes: list[Server] = []
        for number in range(1, self.size + 1):
            node = self._node(base)
            words = {"number": number, "port": node.port, "replica": "replica"}
            node.extra = (BOTH + GTIDS).format(**words)
            nodes.append(node)
        return nodes

    def _node(self, base: Any) -> Any:
        return Node(Programs.find("mysql"), base)

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda node: node.prepare_where_it_can_be(), self.nodes))
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.wait()
            self._connect_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                self.thaw(node)
            node.stop()

    def _connect_all(self) -> None:
        raise NotImplementedError

    def promote(self) -> Server:
        """Make another server the primary, whose predecessor has failed; return it."""
        raise NotImplementedError

    def switch_over(self) -> Server:
        """Make another server the primary while all are well: nothing is lost; return it."""
        raise NotImplementedError

    def others(self) -> list[Server]:
        return [node for node in self.nodes if node is not self.primary]

    def kill(self, node: Server) -> None:
        assert node.process
        node.process.kill()
        node.process.wait()

    def freeze(self, node: Server) -> None:
        assert node.process
        node.process.send_signal(signal.SIGSTOP)

    def thaw(self, node: Server) -> None:
        if node.process and node.process.poll() is None:
            node.process.send_signal(signal.SIGCONT)


class SemiSync(Cluster):
    """A commit returns when the replica has its transaction on disk; it waits for ever for that."""

    def _connect_all(self) -> None:
        self._follow(self.others()[0], self.primary)

    def _follow(self, replica: Server, source: Server) -> None:
        run(replica, "SET GLOBAL super_read_only = ON")
        run(
            replica,
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1',"
            f" SOURCE_PORT = {source.port}, SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1,"
            f" GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1{self._delay()}",
            "SET GLOBAL rpl_semi_sync_replica_enabled = ON",
            "START REPLICA",
        )
        wait_for(lambda: _status(replica, "Replica_IO_Running") == "Yes", "the replica connects")
        self._wait_for_it(source)

    def _delay(self) -> str:
        return ""

    def _wait_for_it(self, source: Server) -> None:
        # Only now: without a replica the first commit would wait, and whoever wants to help, too.
        run(
            source,
            "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
            f"SET GLOBAL rpl_semi_sync_source_timeout = {NEVER_MS}",
            "SET GLOBAL rpl_semi_sync_source_enabled = ON",
        )
        _wait_for_replica(source, "Rpl_semi_sync_source_clients")

    def promote(self) -> Server:
        new = self.others()[0]
        run(new, "STOP REPLICA IO_THREAD")
        self._apply(new)
        return self._lead(new)

    def _apply(self, replica: Server) -> None:
        received = _status(replica, "Retrieved_Gtid_Set").replace("\n", "")
        (done,) = ask(
            replica,
            f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{received}', {PROMOTION_SECONDS}) AS late",
        )
        assert not done["late"], "the replica has not applied what it has received"

    def _lead(self, new: Server) -> Server:
        run(
            new,
            "STOP REPLICA",
            "RESET REPLICA ALL",
            "SET GLOBAL super_read_only = OFF",
            "SET GLOBAL read_only = OFF",
        )
        self.primary = new
        return new

    def switch_over(self) -> Server:
        old, new = self.primary, self.others()[0]
        _close(old, "super_read_only")
        (done,) = ask(old, "SELECT @@GLOBAL.gtid_executed AS gtids")
        gtids = done["gtids"].replace("\n", "")
        (late,) = ask(
            new, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {PROMOTION_SECONDS}) AS late"
        )
        assert not late["late"], "the replica has not applied what it has received"
        run(old, "SET GLOBAL rpl_semi_sync_source_enabled = OFF")
        self._lead(new)
        self._follow(old, new)
        return new


class Asynchronous(SemiSync):
    """The replica applies a second late, and what it has not applied is thrown away."""

    lossless = False

    def _delay(self) -> str:
        return ", SOURCE_DELAY = 1"

    def _wait_for_it(self, source: Server) -> None:
        pass

    def promote(self) -> Server:
        return self._lead(self.others()[0])


class GroupReplication(Cluster):
    """Three nodes with one primary: they elect another one by themselves."""

    size = 3

    def _make(self) -> list[Server]:
        nodes = super()._make()
        group, locals_ = uuid.uuid4(), [free_port() for _ in nodes]
        seeds = ",".join(f"127.0.0.1:{port}" for port in locals_)
        for node, local in zip(nodes, locals_, strict=True):
            node.extra += GROUP.format(group=group, local=local, seeds=seeds)  # type: ignore[attr-defined]
        return nodes

    def _connect_all(self) -> None:
        run(
            self.primary,
            "SET GLOBAL group_replication_bootstrap_group = ON",
            "START GROUP_REPLICATION USER = 'root'",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
        )
        for node in self.others():
            run(node, "START GROUP_REPLICATION USER = 'root'")
            wait_for(lambda node=node: _member(node)[0] == "ONLINE", "a node joins")  # type: ignore[misc]

    def promote(self) -> Server:
        candidates = self.others()

        def elected() -> Server | None:
            return next((node for node in candidates if _leads(node)), None)

        new = wait_for(elected, "a new primary is elected", PROMOTION_SECONDS)
        assert new
        self.primary = new
        return new

    def switch_over(self) -> Server:
        new = self.others()[0]
        (found,) = ask(new, "SELECT @@server_uuid AS id")
        # After so many seconds it ends what is still in a transaction: see _close().
        run(new, f"SELECT group_replication_set_as_primary('{found['id']}', {CLOSING_SECONDS})")
        wait_for(lambda: _leads(new), "the new primary takes over", PROMOTION_SECONDS)
        self.primary = new
        return new


class MariaSemiSync(Cluster):
    """As SemiSync, with MariaDB."""

    vendor = "mariadb"
    user = "app"

    def _node(self, base: Any) -> Any:
        return MariaNode(Programs.find("mariadb"), base)

    def _make(self) -> list[Server]:
        nodes = super()._make()
        for number, node in enumerate(nodes, 1):
            words = {"number": number, "port": node.port, "replica": "slave"}
            node.extra = BOTH.format(**words) + "gtid_strict_mode=ON\n"  # type: ignore[attr-defined]
        return nodes

    def _connect_all(self) -> None:
        self._follow(self.others()[0], self.primary)

    def _follow(self, replica: Server, source: Server) -> None:
        run(
            replica,
            "SET GLOBAL read_only = ON",
            "SET GLOBAL rpl_semi_sync_slave_enabled = ON",
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {source.port},"
            " MASTER_USER = 'root', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1",
            "START SLAVE",
        )
        wait_for(lambda: _slave(replica)["Slave_IO_Running"] == "Yes", "the replica connects")
        run(
            source,
            "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
            f"SET GLOBAL rpl_semi_sync_master_timeout = {NEVER_MS}",
            "SET GLOBAL rpl_semi_sync_master_enabled = ON",
        )
        _wait_for_replica(source, "Rpl_semi_sync_master_clients")

    def promote(self) -> Server:
        new = self.others()[0]
        run(new, "STOP SLAVE IO_THREAD")
        self._reach(new, _slave(new)["Gtid_IO_Pos"])
        return self._lead(new)

    def _reach(self, replica: Server, position: str) -> None:
        wait = f"SELECT MASTER_GTID_WAIT('{position}', {PROMOTION_SECONDS}) AS late"
        assert ask(replica, wait)[0]["late"] == 0, "the replica has not applied what it has"

    def _lead(self, new: Server) -> Server:
        run(new, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
        self.primary = new
        return new

    def switch_over(self) -> Server:
        old, new = self.primary, self.others()[0]
        _close(old, "read_only")
        (done,) = ask(old, "SELECT @@GLOBAL.gtid_binlog_pos AS position")
        self._reach(new, done["position"])
        self._lead(new)
        run(
            old,
            "SET GLOBAL rpl_semi_sync_master_enabled = OFF",
            "SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos",
        )
        self._follow(old, new)
        return new


CLUSTERS: dict[str, type[Cluster]] = {
    "semisync": SemiSync,
    "group": GroupReplication,
    "mariadb": MariaSemiSync,
    "async": Asynchronous,
}


def connect(server: Server, database: str = "") -> Any:
    return MySQLdb.connect(
        host="127.0.0.1",
        port=server.port,
        user="root",
        db=database,
        autocommit=True,
        connect_timeout=10,
        cursorclass=DictCursor,
    )


def run(server: Server, *statements: str) -> None:
    """Run statements on one server, in one session."""
    with contextlib.closing(connect(server)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def ask(server: Server, query: str) -> Sequence[dict[str, Any]]:
    """Return the rows of a query on one server."""
    with contextlib.closing(connect(server)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        found: Sequence[dict[str, Any]] = cursor.fetchall()
        return found


def _close(server: Server, variable: str) -> None:
    """Let nobody write there any more, once what is being committed is committed.

    The server waits for statements that run, and new ones wait for it. One that waits for a row may
    so wait for a transaction that cannot go on, until innodb_lock_wait_timeout. So this gives way
    after CLOSING_SECONDS, and tries again.
    """

    def closed() -> bool:
        try:
            run(
                server,
                f"SET SESSION lock_wait_timeout = {CLOSING_SECONDS}",
                f"SET GLOBAL {variable} = ON",
            )
        except MySQLdb.OperationalError as error:
            if error.args[0] != LOCK_WAIT_TIMEOUT:
                raise
            return False
        return True

    wait_for(closed, "nobody writes any more", PROMOTION_SECONDS)


def _wait_for_replica(source: Server, counter: str) -> None:
    query = f"SHOW GLOBAL STATUS LIKE '{counter}'"
    wait_for(lambda: ask(source, query)[0]["Value"] == "1", "the source has its replica")


def _status(replica: Server, column: str) -> str:
    return str(ask(replica, "SHOW REPLICA STATUS")[0][column])


def _slave(replica: Server) -> dict[str, Any]:
    return ask(replica, "SHOW SLAVE STATUS")[0]


def _member(node: Server) -> tuple[str, str]:
    found = ask(
        node,
        "SELECT MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members"
        " WHERE MEMBER_ID = @@server_uuid",
    )
    return (found[0]["MEMBER_STATE"], found[0]["MEMBER_ROLE"]) if found else ("", "")


def _leads(node: Server) -> bool:
    with contextlib.suppress(MySQLdb.Error):
        writable = ask(node, "SELECT @@super_read_only AS closed")[0]["closed"] == 0
        return writable and _member(node) == ("ONLINE", "PRIMARY")
    return False
