"""The lock that a client holds: free, it hints that the client is gone; the lease stays what holds.

The first part is step by step, the second one has real processes, connections and servers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from streams import Outgoing, consumer, send, send_many
from streams.conf import RENEW_SECONDS
from streams.database.sql import locks as sql
from streams.database.sql.dialect import fetch
from streams.models import Consumer, Delivery, RetryMessage, UtcNow
from streams.models.consumer import LEASE
from streams.observe.audit.walk import audit
from streams.process.shared import death_lock
from streams.process.shared.death_lock import DeathLock
from streams.steps import gone_clients
from streams.steps.gone_clients import GoneClients, kind_of
from streams.steps.sweep import sweep
from tests.consuming import Process
from tests.processes import Child, Spawn, wait_for
from tests.proxy import Proxy
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.mysql,
]

FREE = gone_clients.FREE_SECONDS
KNOWN = LEASE.total_seconds()


class Clock:
    """The monotonic clock of those who look."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(gone_clients, "time", clock)
    return clock


def session_of(client_id: str) -> int | None:
    """The session that has the lock of the client."""
    session: int | None = fetch("default", sql.HELD, [sql.lock_of(client_id)])[0][0]
    return session


class Holder:
    """A client with its lock, on a connection of its own."""

    def __init__(self, process: Process, session: Session) -> None:
        self.process, self.session = process, session
        self.lock = DeathLock(process.client, process.using)
        self.keep()

    @property
    def id(self) -> str:
        return self.process.client.client_id

    def keep(self) -> None:
        with self.session.active():
            self.lock.keep()

    def kept(self) -> bool:
        self.keep()
        return self.lock.held

    def lose(self) -> None:
        """The connection ends, as when the process or its host does."""
        self.session.close()
        wait_for(lambda: session_of(self.id) is None)

    def is_live(self) -> bool:
        return Consumer.objects.live().filter(client_id=self.id).exists()


@pytest.fixture
def holder(second_connection: Callable[..., Session]) -> Callable[[], Holder]:
    consumer("orders", group="mail")(print)
    return lambda: Holder(Process("mail"), second_connection())


@pytest.fixture
def looker(holder: Callable[[], Holder], clock: Clock) -> Looker:
    return Looker(holder(), clock)


class Looker:
    """A process that knows its server, and looks."""

    def __init__(self, holder: Holder, clock: Clock) -> None:
        self.holder, self.clock = holder, clock
        self.gone = GoneClients("default")
        assert self.look() == 0
        clock.now += KNOWN

    def look(self, after: float = 0.0) -> int:
        self.clock.now += after
        return self.gone.step(self.holder.id)


def test_a_client_whose_lock_is_free_for_a_second_is_gone(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    other = holder()
    send_many([Outgoing("orders", n) for n in range(3)])
    other.process.poller.step()
    other.process.claim(3)
    assert looker.look() == 0
    other.lose()
    assert looker.look() == 0
    assert looker.look(0.9 * FREE) == 0
    assert other.is_live()
    assert looker.look(0.2 * FREE) == 1
    assert not other.is_live()
    assert sweep("default") == 1
    assert RetryMessage.objects.due().count() == 3
    assert looker.look(FREE) == 0
    assert audit("default") == []


def test_whoever_takes_it_again_within_the_second_lives(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    other = holder()
    for _time in range(3):
        other.lose()
        assert looker.look() == 0
        other.keep()
        assert looker.look(FREE) == 0
    assert other.is_live()


def test_whoever_renews_its_lease_meanwhile_lives(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    other = holder()
    other.lose()
    assert looker.look() == 0
    assert other.process.client.renew()
    assert looker.look(2 * FREE) == 0
    rows = Consumer.objects.filter(client_id=other.id)
    found = rows.get().lease_until
    rows.update(lease_until=UtcNow(LEASE))  # between the look and what follows from it
    assert not looker.gone._end(other.id, found.replace(tzinfo=None))
    assert other.is_live()


def test_a_client_without_a_lock_has_its_lease(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    consumer("orders", group="sms")(print)
    bare = Process("sms")
    assert looker.look() == looker.look(2 * FREE) == 0
    assert Consumer.objects.live().filter(client_id=bare.client.client_id).exists()


def test_a_lock_on_another_server_is_not_judged(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    """Of before a restart, too: the start of the server is a part of its name."""
    other = holder()
    other.lose()
    rows = Consumer.objects.filter(client_id=other.id)
    name, _blank, start = rows.get().locked_on.rpartition(" ")
    for elsewhere in (f"{name} {int(start) - 1}", f"another {start}"):
        rows.update(locked_on=elsewhere)
        assert looker.look() == looker.look(2 * FREE) == 0
    rows.update(locked_on=f"{name} {start}")
    assert (looker.look(), looker.look(FREE)) == (0, 1)


def test_on_a_server_that_is_new_to_it_nobody_judges_for_a_lease(
    holder: Callable[[], Holder], clock: Clock
) -> None:
    """After a failover all locks are free, until their clients are there."""
    own, other = holder(), holder()
    other.lose()
    gone = GoneClients("default")
    for _second in range(int(KNOWN)):
        assert gone.step(own.id) == 0
        clock.now += 1.0
    assert (gone.step(own.id), other.is_live()) == (0, True)
    clock.now += FREE
    assert (gone.step(own.id), other.is_live()) == (1, False)


def test_when_most_locks_are_free_at_once_the_leases_decide(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    others = [holder() for _one in range(3)]
    for other in others[:2]:
        other.lose()
    assert (looker.look(), looker.look(FREE)) == (0, 2)  # as many as are held
    more = [holder() for _one in range(3)]
    for other in (others[2], *more[:2]):
        other.lose()
    assert looker.look() == looker.look(2 * FREE) == 0
    for other in more[:2]:
        other.keep()
    assert (looker.look(), looker.look(FREE)) == (0, 1)
    assert not others[2].is_live()


def test_whoever_has_lost_its_own_lock_does_not_judge(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    """What took its connection may have taken those of others."""
    other, _third, _fourth = holder(), holder(), holder()
    other.lose()
    looker.holder.lose()
    assert looker.look() == looker.look(2 * FREE) == 0
    looker.holder.keep()
    assert (looker.look(), looker.look(FREE)) == (0, 1)


def test_one_statement_looks_at_all_clients(
    looker: Looker, holder: Callable[[], Holder], django_assert_num_queries: Any
) -> None:
    others = [holder() for _one in range(4)]
    with django_assert_num_queries(1):
        assert looker.look() == 0
    others[0].lose()
    with django_assert_num_queries(1):
        assert looker.look() == 0


def test_looks_are_seldom_where_many_clients_look(
    looker: Looker, holder: Callable[[], Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gone_clients, "CLIENTS_A_SECOND", 1)
    others = [holder() for _one in range(3)]
    looker.look()
    assert looker.gone.pause == 4.0
    others[0].lose()
    looker.look()
    assert looker.gone.pause == gone_clients.LOOK_SECONDS


def test_a_process_that_is_alone_looks_as_seldom_as_it_sweeps(
    looker: Looker, holder: Callable[[], Holder]
) -> None:
    assert looker.gone.pause == RENEW_SECONDS
    holder()
    looker.look()
    assert looker.gone.pause == gone_clients.LOOK_SECONDS


# -- the holder --------------------------------------------------------------------------------


def no_statement(*args: Any) -> None:
    raise AssertionError(args)


def test_a_connection_that_was_killed_is_noticed_without_a_statement(
    holder: Callable[[], Holder], second_connection: Callable[..., Session]
) -> None:
    one = holder()
    first = session_of(one.id)
    with one.session.connection.execute_wrapper(no_statement):
        one.keep()  # between two checks
    second_connection().execute(f"KILL CONNECTION {first}")
    wait_for(lambda: session_of(one.id) is None)
    wait_for(lambda: one.kept() and session_of(one.id))
    assert session_of(one.id) != first
    assert one.is_live()


def test_a_new_id_has_a_lock_of_its_own(holder: Callable[[], Holder]) -> None:
    one = holder()
    old = sql.lock_of(one.id)
    with one.session.active():
        one.process.client.register()
    one.keep()
    assert session_of(one.id)
    wait_for(lambda: fetch("default", sql.HELD, [old])[0][0] is None)
    assert Consumer.objects.get(client_id=one.id).locked_on


def test_while_the_server_holds_on_to_the_last_session_nothing_is_noted(
    holder: Callable[[], Holder],
    second_connection: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the network has forgotten the connection, and only this end knows."""
    consumer("orders", group="sms")(print)
    process, stale = Process("sms"), second_connection()
    stale.execute(f"DO GET_LOCK('{sql.lock_of(process.client.client_id)}', 0)")
    monkeypatch.setattr(death_lock, "LOOK_SECONDS", 0.0)
    one = Holder(process, second_connection())
    assert not one.lock.held
    assert not Consumer.objects.get(client_id=one.id).locked_on
    stale.close()
    wait_for(one.kept)
    assert Consumer.objects.get(client_id=one.id).locked_on


def test_a_lock_that_is_lost_behind_a_proxy_is_not_noted_any_more(
    holder: Callable[[], Holder],
    second_connection: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy that shares its connections may do so only when it has more clients."""
    monkeypatch.setattr(death_lock, "LEASE_SECONDS", 0.0)
    one = holder()
    assert one.kept()
    with one.session.active():
        fetch("default", "SELECT RELEASE_LOCK(%s)", [sql.lock_of(one.id)])
    assert not one.kept()
    assert not Consumer.objects.get(client_id=one.id).locked_on


@pytest.mark.parametrize("reason", ["galera", "proxy", "refused", "off"])
def test_where_a_lock_would_mislead_there_is_none(
    holder: Callable[[], Holder],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ems_settings: Callable[..., None],
    reason: str,
) -> None:
    if reason == "galera":
        monkeypatch.setattr(sql, "GALERA", "SELECT 'wsrep_on', 'ON'")
    elif reason == "proxy":
        monkeypatch.setattr(sql, "HELD", "SELECT IS_USED_LOCK(%s), 1 + CONNECTION_ID()")
    elif reason == "refused":
        monkeypatch.setitem(sql.TAKE, kind_of("default"), "SELECT NO_SUCH_FUNCTION_(%s)")
    else:
        ems_settings(DEATH_LOCK=False)
    one = holder()
    one.keep()
    assert not one.lock.held
    assert not Consumer.objects.get(client_id=one.id).locked_on
    events = [record.ems_event for record in caplog.records if hasattr(record, "ems_event")]
    assert events == ([] if reason == "off" else ["death_lock.unavailable"])


# -- real processes ------------------------------------------------------------------------------

CONSUMER = """
import sys, time
from pathlib import Path
from streams import consumer
from streams.steps import gone_clients
from django.core.management import call_command

name, folder, free = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
gone_clients.LEASE_SECONDS = 0.5  # since when it must know the server
gone_clients.FREE_SECONDS = free

@consumer("orders", group="mail")
def handle(message):
    (folder / f"{name} {message.offset} {message.attempt}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)

call_command("ems_consume", "--start", "earliest", "--threads", "2", "--batch", "1", "-v", "2")
"""
LONG = 20.0  # longer than any machine needs to connect again


@pytest.fixture
def hosts(spawn: Spawn, tmp_path: Path) -> Hosts:
    consumer("orders", group="mail")(print)
    return Hosts(spawn, tmp_path)


class Hosts:
    """Consumer processes, each on a host of its own as far as they know."""

    def __init__(self, spawn: Spawn, folder: Path) -> None:
        self.spawn, self.folder = spawn, folder
        self.count = 0

    def start(self, name: str, *, free: float = FREE, env: dict[str, str] | None = None) -> Child:
        # Of a process on this host the progress file says more than the lock.
        keys = {**settings.EMS, "STATE_DIR": f"{self.folder}-state-{name}"}
        told = {"EMS_TEST_EMS": json.dumps(keys), **(env or {})}
        child = self.spawn(CONSUMER, name, self.folder, free, env=told)
        self.count += 1
        wait_for(lambda: self.locked == self.count, lambda: child.text())
        return child

    @property
    def locked(self) -> int:
        return Consumer.objects.live().exclude(locked_on="").count()

    def begun(self, name: str) -> set[str]:
        """Return the offsets and attempts of the calls that have begun."""
        return {path.name.removeprefix(f"{name} ") for path in self.folder.glob(f"{name} *")}

    def session(self, child: Child) -> int | None:
        rows = Consumer.objects.live().filter(client_id__contains=f"@{child.pid}@")
        return session_of(rows.get().client_id)

    def go(self) -> None:
        (self.folder / "go").touch()
        wait_for(lambda: not Delivery.objects.open().exists(), "the end of the calls")


@pytest.mark.slow
def test_what_a_killed_process_had_begun_begins_again_at_once(hosts: Hosts) -> None:
    first = hosts.start("first")
    send_many([Outgoing("orders", n) for n in range(2)])
    wait_for(lambda: hosts.begun("first") == {"0 1", "1 1"}, "the calls")
    second = hosts.start("second")
    first.kill()
    second.expect("is gone: its lease ends now")
    wait_for(lambda: hosts.begun("second") == {"0 2", "1 2"}, "the next attempts")
    hosts.go()
    assert audit("default") == []


@pytest.mark.slow
def test_a_connection_that_is_killed_costs_its_client_nothing(
    hosts: Hosts, second_connection: Callable[..., Session]
) -> None:
    first = hosts.start("first")
    send("orders", 1)
    wait_for(lambda: hosts.begun("first"), "the call")
    second = hosts.start("second", free=LONG)
    other = second_connection()
    for _time in range(3):
        session = hosts.session(first)
        other.execute(f"KILL CONNECTION {session}")
        wait_for(lambda: hosts.session(first) not in (None, session))  # noqa: B023
    hosts.go()
    assert hosts.begun("second") == set()
    assert "is gone" not in first.text() + second.text()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_proxy_that_starts_again_costs_nobody_anything(proxied: Proxy, hosts: Hosts) -> None:
    """All connections end at once, and all locks are free until their clients are there."""
    children = [hosts.start(name, free=LONG) for name in ("one", "two", "three")]
    send_many([Outgoing("orders", n) for n in range(6)])
    wait_for(lambda: len(list(hosts.folder.iterdir())) == 6, "the calls")
    for _time in range(3):
        proxied.kill_connections()
        connection.close()
        wait_for(lambda: all(hosts.session(child) for child in children), "their locks")
    hosts.go()
    assert {path.name.split()[-1] for path in hosts.folder.glob("* *")} == {"1"}
    assert not [child for child in children if "is gone" in child.text()]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.one_server
def test_a_host_that_was_cut_off_keeps_its_lock_and_loses_its_lease(
    direct: dict[str, str], proxied: Proxy, hosts: Hosts
) -> None:
    """The server sees no end of a connection that a firewall has forgotten."""
    cut = hosts.start("cut")
    send("orders", 1)
    wait_for(lambda: hosts.begun("cut"), "the call")
    second = hosts.start("second", env=direct)
    proxied.freeze_at(b"SET `lease_until`")
    proxied.wait_until_fired()
    # By either of them: the first one has other connections, and takes a new id.
    wait_for(lambda: "0 2" in hosts.begun("second") | hosts.begun("cut"), "the next attempt")
    assert "is gone" not in second.text()
    assert cut.process.poll() is None
    hosts.go()


@pytest.fixture
def direct() -> dict[str, str]:
    """What connects a child with the server itself; to be named before ``proxied``."""
    variable = f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL"
    return {variable: os.environ[variable]}
