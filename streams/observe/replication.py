"""Says what a failover of the server may lose, as far as the server knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db import DatabaseError, connections

from streams.observe.diagnoses import OK, WARNING, Diagnosis
from streams.observe.mysql_server import Server
from streams.plural import plural
from streams.release import documentation

# In milliseconds: a source of semi-synchronous replication that waits for less long degrades in an
# outage of the replica.
LONG_TIMEOUT = 1_000_000

# MySQL says source and replica since 8.0.26; before, and on MariaDB, it is master and slave.
_SEMI_SYNC = ("rpl_semi_sync_source", "rpl_semi_sync_master")
_VARIABLES = (
    *(f"{prefix}_{name}" for prefix in _SEMI_SYNC for name in ("enabled", "timeout", "wait_point")),
    *("rpl_semi_sync_source_wait_no_replica", "rpl_semi_sync_master_wait_no_slave"),
    *("group_replication_group_name", "group_replication_single_primary_mode"),
    *("log_bin", "read_only", "super_read_only", "wsrep_on"),
)
_STATUS = (
    *(f"{prefix}_{name}" for prefix in _SEMI_SYNC for name in ("status", "clients", "no_tx")),
    *("wsrep_cluster_size", "wsrep_local_state_comment", "wsrep_ready"),
)
# Threads that send the binary log to replicas.
_REPLICAS = (
    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE `COMMAND` LIKE 'Binlog Dump%%'"
)
_MEMBERS = "SELECT `MEMBER_STATE`, `MEMBER_ROLE` FROM performance_schema.replication_group_members"


def replication(using: str) -> Iterator[Diagnosis]:
    """Yield what a failover of the server may lose; nothing on SQLite."""
    if connections[using].vendor == "mysql":
        yield Replication(Server(using)).diagnosis()


@dataclass(frozen=True)
class Degrading:
    """Why commits may be lost though replication is semi-synchronous, and what to set."""

    text: str
    hint: str


class Replication:
    """Reads, once, how the server behind an alias is replicated."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._variables = server.variables(_VARIABLES)
        self._status = server.statuses(_STATUS)
        self._prefix = next((p for p in _SEMI_SYNC if f"{p}_enabled" in self._variables), "")

    @property
    def is_galera(self) -> bool:
        return self._is_on("wsrep_on")

    @property
    def is_group(self) -> bool:
        return bool(self._variables.get("group_replication_group_name"))

    @property
    def has_several_primaries(self) -> bool:
        return self.is_group and not self._is_on("group_replication_single_primary_mode")

    @property
    def is_semi_sync(self) -> bool:
        """Tell whether semi-synchronous replication is switched on, also if it has degraded."""
        return bool(self._prefix) and self._is_on(f"{self._prefix}_enabled")

    def degrading(self) -> Iterator[Degrading]:
        """Yield why this semi-synchronous replication may lose commits in a failover."""
        if not self.is_semi_sync:
            return
        timeout = f"{self._prefix}_timeout"
        if int(self._variables.get(timeout, 0)) < LONG_TIMEOUT:
            yield Degrading(
                f"after {int(self._variables.get(timeout, 0))} ms without a replica it goes on"
                " without one",
                f"{timeout} = 1000000000",
            )
        for name in ("rpl_semi_sync_source_wait_no_replica", "rpl_semi_sync_master_wait_no_slave"):
            if name in self._variables and not self._is_on(name):
                yield Degrading(
                    "it goes on as soon as the replica is gone",
                    f"{name} = ON",
                )
        point = f"{self._prefix}_wait_point"
        if self._variables.get(point, "AFTER_SYNC") != "AFTER_SYNC":
            yield Degrading(
                "others see a commit before the replica has it", f"{point} = AFTER_SYNC"
            )

    def diagnosis(self) -> Diagnosis:
        """Return what a failover may lose: a warning if it may lose commits."""
        if self._is_on("read_only") or self._is_on("super_read_only"):
            text = "This server is read-only: nothing can be sent or consumed."
            return self._warning(text, "Does the alias lead to the primary?")
        if self.is_galera:
            return self._of_galera()
        if self.is_group:
            return self._of_group()
        if self.is_semi_sync:
            return self._of_semi_sync()
        if not self._is_on("log_bin"):
            return self._ok("none: the server has no binary log")
        replicas = self._count(_REPLICAS)
        if replicas is None:
            return self._ok("unknown: this account may not see connected replicas")
        if not replicas:
            return self._ok("none: this account sees no replica that is connected")
        connected = plural(replicas, "replica", "replicas")
        text = f"Asynchronous, to {connected}: a failover may lose the last commits."
        hint = f"See {documentation('guides/failover.md')}: semi-synchronous."
        return self._warning(text, hint)

    def _of_galera(self) -> Diagnosis:
        state = self._status.get("wsrep_local_state_comment", "?")
        size = self._status.get("wsrep_cluster_size", "?")
        text = f"Galera: {size} nodes, this one is {state}."
        if self._status.get("wsrep_ready") == "ON":
            return self._ok(text)
        return self._warning(text, "It refuses statements until it is synced.")

    def _of_group(self) -> Diagnosis:
        try:
            members = self._server.rows(_MEMBERS)
        except DatabaseError:
            text = "Group Replication; this account may not see its members."
            return self._ok(text)
        online = [role for state, role in members if state == "ONLINE"]
        text = (
            f"Group Replication: {len(online)} of {len(members)} members are online,"
            f" primaries: {online.count('PRIMARY')}."
        )
        if len(online) == len(members) > 2:
            return self._ok(text)
        hint = "With two members or fewer, none may be lost: the group would stop."
        return self._warning(text, hint)

    def _of_semi_sync(self) -> Diagnosis:
        status = self._status.get(f"{self._prefix}_status", "OFF")
        clients = int(self._status.get(f"{self._prefix}_clients", 0))
        missed = int(self._status.get(f"{self._prefix}_no_tx", 0))
        if status != "ON" or not clients:
            text = "Semi-synchronous, and no replica confirms: a failover may lose commits."
            return self._warning(text, "Is the replica connected, and its plugin on?")
        text = f"Semi-synchronous, to {clients} replicas; {missed} commits not confirmed."
        if reasons := list(self.degrading()):
            why = "; ".join(reason.text for reason in reasons)
            return self._warning(f"{text} {why}.", ", ".join(r.hint for r in reasons))
        return self._ok(text)

    def _is_on(self, name: str) -> bool:
        return self._variables.get(name, "OFF").upper() in ("ON", "1")

    def _count(self, statement: str) -> int | None:
        try:
            ((count,),) = self._server.rows(statement)
        except DatabaseError:
            return None
        return int(count)

    def _ok(self, text: str) -> Diagnosis:
        return Diagnosis(OK, "replication", text)

    def _warning(self, text: str, hint: str) -> Diagnosis:
        return Diagnosis(WARNING, "replication", text, hint)
