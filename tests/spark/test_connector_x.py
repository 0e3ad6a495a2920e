"""ConnectorX gives the rows that mysqlclient gives, and is used only where it may be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sparkjobs.config import Config
from sparkjobs.errors import UnreadableBody
from sparkjobs.source import connector_x, reading
from streams import Outgoing, send, send_many
from streams.log.sequencer import sequence
from streams.models import Message
from tests.large_bodies import VALUES
from tests.processes import Spawn
from tests.spark.direct import Reading, part, sent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


@pytest.mark.mysql
def test_it_gives_the_rows_that_mysqlclient_gives(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("connectorx")
    send("orders", {"né": [1, None]}, key="Zoë 𝄞", tag="new", headers={"trace": "a b", "z": "é"})
    send("orders", bytes(range(256)), delay=timedelta(microseconds=1))
    send("orders", "")
    send("orders", "x" * 3_000_000)
    send_many([Outgoing("orders", value) for value in VALUES])
    for number in range(3):
        send_many([Outgoing(f"t{number}", n, key=str(n)) for n in range(40)])
    sequence("default")
    Message.objects.filter(partition__topic__name="t1", offset=7).update(size=2**30)
    assert connector_x.address(config)
    found: dict[tuple[str, tuple[str, ...], int], list[str]] = {}
    for name in ("connectorx", "mysqlclient"):
        if name == "mysqlclient":
            monkeypatch.setattr(reading, "address", lambda config: None)
        for columns in ((), ("offset", "body"), ("topic", "offset", "key")):
            for topic in ({}, {"topic": "orders"}):
                rows = Reading(config, *columns, split_rows=50, **topic).rows()
                found[name, columns, len(topic)] = sorted(map(repr, rows))
    assert len(found["connectorx", (), 0]) == 124 + len(VALUES)
    for (_, asked, topics), seen in found.items():
        assert seen == found["mysqlclient", asked, topics], asked


@pytest.mark.mysql
def test_a_body_that_cannot_be_read_is_named_or_null_as_with_mysqlclient(config: Config) -> None:
    pytest.importorskip("connectorx")
    send_many([Outgoing("orders", "x" * 5000)] * 3)
    sequence("default")
    Message.objects.filter(offset=1).update(body=b"no zlib")
    assert connector_x.address(config)
    with pytest.raises(UnreadableBody, match="orders/0: offset 1 "):
        Reading(config, "body").rows()
    rows = Reading(config, "offset", "body", "body_error", mode="PERMISSIVE").rows()
    assert {row["offset"]: row["body"] is None for row in rows} == {0: False, 1: True, 2: False}
    assert [row["offset"] for row in rows if row["body_error"]] == [1]


# ConnectorX lets no other thread of its process run while it waits for rows.
KILLER = """
import sys, time
from sparkjobs.config import Config
from sparkjobs.database import connected, execute, fetch

reading = (
    "SELECT id FROM information_schema.processlist"
    " WHERE info LIKE 'SELECT%%SLEEP%%' AND id <> CONNECTION_ID()"
)
with connected(Config.load(sys.argv[1])) as connection:
    while not (threads := fetch(connection, reading)):
        time.sleep(0.05)
    time.sleep(1)  # some rows have been received
    execute(connection, "KILL QUERY %s", threads[0])
"""


@pytest.mark.mysql
def test_a_statement_that_the_server_kills_is_no_end_of_the_log(
    config: Config, monkeypatch: pytest.MonkeyPatch, spawn: Spawn
) -> None:
    pytest.importorskip("connectorx")

    def slowly(self: reading.Task, sent: Any, where: list[Any], *more: Any) -> Any:
        return whole(self, sent, [*where, ("SLEEP(0.02) = 0", None)], *more)

    whole = reading.Task._arrays
    monkeypatch.setattr(reading.Task, "_arrays", slowly)
    monkeypatch.setattr(connector_x, "ROWS_WITH_BODIES", 10)
    planned = part(sent(messages=1000), 0, 1000)
    killer = spawn(KILLER, config.path)
    # ConnectorX says it or hides it, depending on when the statement is killed. What it raises is
    # no Exception.
    said = "execution was interrupted|rows of the offsets 0 … 999 were received"
    with pytest.raises(BaseException, match=said):
        Reading(config, "offset", "body", holes="skip", purged="skip").task(planned)
    killer.succeed(20)


def test_it_is_used_only_for_a_plain_address_where_nothing_would_be_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_x, "find_spec", lambda name: "there")

    def address(client: str, more: str = "") -> str | None:
        path = tmp_path / "ems.cnf"
        path.write_text(f"[client]\n{client}\n[ems]\nvendor=mysql\n{more}")
        return connector_x.address(Config.load(str(path)))

    local = "host=127.0.0.1\nport=3307\nuser=ems\npassword=a b/@%\ndatabase=shop"
    assert address(local) == "mysql://ems:a%20b%2F%40%25@127.0.0.1:3307/shop"
    far = local.replace("127.0.0.1", "db.example.org")
    assert address(f"{far}\nssl-mode=disabled") == address(local).replace(  # type: ignore[union-attr]
        "127.0.0.1", "db.example.org"
    )
    for client in (
        far,
        f"{local}\nssl-ca=/etc/ssl/db.pem",
        f"{local}\nsocket=/run/mysqld.sock",
        local.replace("a b", '"a b"'),
        "user=ems",
    ):
        assert address(client) is None, client
    assert address(local, "!include /etc/my.cnf\n") is None
    monkeypatch.setattr(connector_x, "find_spec", lambda name: None)
    assert address(local) is None
