"""What the doctor, the checks and the metric say of replication, and which servers are refused.

Semi-synchronous replication is that of the server. Groups and Galera are told by the variables that
such a server has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.db import DatabaseError, OperationalError, connection

from streams.checks import check_database
from streams.metrics.reading import MetricReading
from streams.observe.diagnoses import OK, WARNING, Diagnosis
from streams.observe.doctor import examine
from streams.observe.mysql_server import Server
from streams.observe.replication import replication
from tests.proxy import Proxy

pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]

Says = Callable[..., None]


def checked(*ids: str) -> list[CheckMessage]:
    found = check_database(databases=["default"])
    return [message for message in found if message.id in ids]


def diagnosis() -> Diagnosis:
    (found,) = replication("default")
    assert found.name == "replication"
    return found


def ok() -> float:
    (found,) = [
        value for name, _l, value in MetricReading("default").samples() if "replication" in name
    ]
    return found


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Let the server have other variables, status values and rows, beside its own."""

    def change(rows: list[Any] | Exception | None = None, **values: str) -> None:
        real = {name: getattr(Server, name) for name in ("variables", "statuses", "rows")}

        def asked(name: str) -> Any:
            return lambda self, names: {**real[name](self, names), **values}

        def told(self: Server, statement: str, *parameters: Any) -> list[Any]:
            if rows is None or ("PROCESSLIST" not in statement and "members" not in statement):
                return list(real["rows"](self, statement, *parameters))
            if isinstance(rows, Exception):
                raise rows
            return rows

        monkeypatch.setattr(Server, "variables", asked("variables"))
        monkeypatch.setattr(Server, "statuses", asked("statuses"))
        monkeypatch.setattr(Server, "rows", told)

    return change


def test_a_server_without_a_binary_log_has_no_replicas(says):
    says(log_bin="OFF")
    assert diagnosis() == Diagnosis(OK, "replication", "none: the server has no binary log")
    assert diagnosis() in examine("default")
    assert checked("ems.W017", "ems.W018") == []
    assert ok() == 1


@pytest.mark.parametrize(
    ("rows", "level", "text"),
    [
        ([(2,)], WARNING, "Asynchronous, to 2 replicas: a failover may lose the last commits."),
        ([(0,)], OK, "none: this account sees no replica that is connected"),
        (DatabaseError("denied"), OK, "unknown: this account may not see connected replicas"),
    ],
)
def test_replicas_without_more_are_asynchronous(says, rows, level, text):
    says(rows, log_bin="ON")
    assert (diagnosis().level, diagnosis().text) == (level, text)
    assert ok() == (level == OK)


def test_a_server_that_is_read_only_is_said(says):
    says(read_only="ON")
    assert diagnosis().level == WARNING
    assert "nothing can be sent" in diagnosis().text


# -- semi-synchronous ---------------------------------------------------------------------------

SEMI_SYNC = {
    "rpl_semi_sync_source_enabled": "ON",
    "rpl_semi_sync_source_timeout": "1000000000",
    "rpl_semi_sync_source_wait_point": "AFTER_SYNC",
    "rpl_semi_sync_source_wait_no_replica": "ON",
    "rpl_semi_sync_source_status": "ON",
    "rpl_semi_sync_source_clients": "2",
    "rpl_semi_sync_source_no_tx": "3",
}


def test_semi_synchronous_replication_that_waits_is_right(says):
    says(**SEMI_SYNC)
    text = "Semi-synchronous, to 2 replicas; 3 commits not confirmed."
    assert diagnosis() == Diagnosis(OK, "replication", text)
    assert checked("ems.W018") == []


@pytest.mark.parametrize(
    ("change", "why", "hint"),
    [
        ({"timeout": "10000"}, "after 10000 ms without a replica", "_timeout = 1000000000"),
        ({"wait_no_replica": "OFF"}, "as soon as the replica is gone", "_wait_no_replica = ON"),
        ({"wait_point": "AFTER_COMMIT"}, "others see a commit before", "_wait_point = AFTER_SYNC"),
    ],
)
def test_semi_synchronous_replication_that_degrades_is_warned_of(says, change, why, hint):
    says(**SEMI_SYNC | {f"rpl_semi_sync_source_{name}": value for name, value in change.items()})
    (warning,) = checked("ems.W018")
    assert why in str(warning.msg)
    assert f"rpl_semi_sync_source{hint}" in str(warning.hint)
    assert diagnosis().level == WARNING
    assert why in diagnosis().text
    assert ok() == 0


@pytest.mark.parametrize("change", [{"status": "OFF"}, {"clients": "0"}])
def test_that_no_replica_confirms_is_warned_of(says, change):
    says(**SEMI_SYNC | {f"rpl_semi_sync_source_{name}": value for name, value in change.items()})
    assert diagnosis().level == WARNING
    assert "no replica confirms" in diagnosis().text


@pytest.fixture
def semi_sync(vendor: str) -> Iterator[None]:
    """Switch it on at the real server, which has no binary log: so no commit waits."""
    name = "master"
    with connection.cursor() as cursor:
        if vendor == "mysql":
            name = "source"
            try:
                cursor.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
            except OperationalError as error:
                pytest.skip(str(error))
        cursor.execute(f"SET GLOBAL rpl_semi_sync_{name}_enabled = ON")
        yield
        cursor.execute(f"SET GLOBAL rpl_semi_sync_{name}_enabled = OFF")
        if vendor == "mysql":
            cursor.execute("UNINSTALL PLUGIN rpl_semi_sync_source")


def test_the_variables_are_those_of_the_servers(semi_sync):
    (warning,) = checked("ems.W018")
    assert "after 10000 ms" in str(warning.msg)
    assert "no replica confirms" in diagnosis().text


# -- several writers ----------------------------------------------------------------------------


def group(*members: str) -> list[tuple[str, str]]:
    return [tuple(member.split()) for member in members]  # type: ignore[misc]


def test_a_group_with_one_primary_is_right(says):
    rows = group("ONLINE PRIMARY", "ONLINE SECONDARY", "ONLINE SECONDARY")
    says(rows, group_replication_group_name="a", group_replication_single_primary_mode="ON")
    text = "Group Replication: 3 of 3 members are online, primaries: 1."
    assert diagnosis() == Diagnosis(OK, "replication", text)
    assert checked("ems.W017") == []


def test_a_group_that_has_lost_a_member_is_warned_of(says):
    rows = group("ONLINE PRIMARY", "UNREACHABLE SECONDARY", "ONLINE SECONDARY")
    says(rows, group_replication_group_name="a", group_replication_single_primary_mode="ON")
    assert (diagnosis().level, diagnosis().text[:42]) == (
        WARNING,
        "Group Replication: 2 of 3 members are onli",
    )


def test_a_group_with_several_primaries_is_warned_of(says):
    says(group_replication_group_name="a", group_replication_single_primary_mode="OFF")
    (warning,) = checked("ems.W017")
    assert "several primaries" in str(warning.msg)


GALERA = {"wsrep_on": "ON", "wsrep_ready": "ON", "wsrep_cluster_size": "3"}


def test_galera_is_warned_of_where_another_alias_may_write_to_it(says, settings, monkeypatch):
    says(**GALERA, wsrep_local_state_comment="Synced")
    assert checked("ems.W017") == []
    assert diagnosis() == Diagnosis(OK, "replication", "Galera: 3 nodes, this one is Synced.")
    from django.db import connections

    other = connections["other"].settings_dict
    monkeypatch.setitem(other, "NAME", connection.settings_dict["NAME"])
    monkeypatch.setitem(other, "HOST", "192.0.2.1")
    (warning,) = checked("ems.W017")
    assert "and so may be other" in str(warning.msg)


def test_a_node_of_galera_that_is_not_synced_is_said(says):
    says(**GALERA | {"wsrep_ready": "OFF"}, wsrep_local_state_comment="Donor")
    assert diagnosis().level == WARNING


# -- servers that only speak the protocol -------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kind"),
    [(b"8.0.11-TiDB-v8.5.6", "TiDB"), (b"5.7.25-OceanBase-v4.2.1", "OceanBase")],
)
def test_a_server_that_takes_no_lock_is_refused(proxied: Proxy, version: bytes, kind: str):
    proxied.greets_as = version
    connection.close()
    found = check_database(databases=["default"])
    assert [message.id for message in found] == ["ems.E013"]
    assert f"is {kind}, on which EMS would" in str(found[0].msg)
    connection.close()


def test_vitess_is_refused_if_it_refuses_the_lock(proxied: Proxy, monkeypatch):
    proxied.greets_as = b"8.0.30-Vitess"
    connection.close()
    assert checked("ems.E013") == []  # this server knows SKIP LOCKED
    real = Server.rows

    def old(self: Server, statement: str, *parameters: Any) -> list[Any]:
        if "SKIP LOCKED" in statement:
            raise DatabaseError(1064, "syntax error")
        return real(self, statement, *parameters)

    monkeypatch.setattr(Server, "rows", old)
    assert len(checked("ems.E013")) == 1
    connection.close()
