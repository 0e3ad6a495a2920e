"""Messages are read from a replica where there is one, and never less than was asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection as django

from sparkjobs.config import Config
from sparkjobs.database import connect, connected, execute, fetch, transaction
from sparkjobs.errors import BadConfig, Missing, ReplicaBehind
from sparkjobs.source import connector_x, replica
from streams import consumer
from streams.models import Message, Partition
from streams.testing import drain
from tests.packages import Programs
from tests.servers import MySQL, memory_or_disk
from tests.spark.direct import Reading, sent

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

TABLES = ("ems_topic", "ems_partition", "ems_group", "ems_msg", "ems_topic_group_log")


class Copy:
    """A second database with the tables of the first one, in place of a replica."""

    def __init__(self, config: Config) -> None:
        self.primary = config
        self.name = f"{django.settings_dict['NAME']}_replica"
        text = Path(config.path).read_text()
        path = Path(config.path).with_name("replica.cnf")
        path.touch(mode=0o600)
        path.write_text(f"{text}[replica]\ndatabase={self.name}\n")
        self.config = Config.load(str(path))

    def execute(self, *statements: str) -> None:
        with connected(self.primary.everywhere()) as connection:
            for statement in statements:
                execute(connection, statement)

    def create(self) -> None:
        self.drop()
        of = django.settings_dict["NAME"]
        self.execute(
            f"CREATE DATABASE `{self.name}`",
            *(f"CREATE TABLE `{self.name}`.`{table}` LIKE `{of}`.`{table}`" for table in TABLES),
        )

    def drop(self) -> None:
        self.execute(f"DROP DATABASE IF EXISTS `{self.name}`")

    def follow(self) -> None:
        """Have what the first one has, by one transaction, as a replica has those of its source."""
        of = django.settings_dict["NAME"]
        with connected(self.primary.everywhere()) as connection, transaction(connection):
            for table in TABLES:
                columns = ", ".join(f"`{name}`" for name in _stored(connection, table))
                execute(connection, f"DELETE FROM `{self.name}`.`{table}`")
                execute(
                    connection,
                    f"INSERT INTO `{self.name}`.`{table}` ({columns})"
                    f" SELECT {columns} FROM `{of}`.`{table}`",
                )


def _stored(connection: Any, table: str) -> list[str]:
    """The columns of a table that are not computed by the server."""
    rows = fetch(
        connection,
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
        " AND TABLE_NAME = %s AND COALESCE(GENERATION_EXPRESSION, '') = ''",
        [table],
    )
    return [name for (name,) in rows]


@pytest.fixture
def copy(config: Config) -> Iterator[Copy]:
    made = Copy(config)
    made.create()
    yield made
    made.drop()


@pytest.mark.mysql
def test_messages_come_from_the_replica_and_other_tables_from_the_primary(copy: Copy) -> None:
    @consumer("orders", group="mail", batch=5)
    def handle(received: Any) -> None:
        return None

    sent(messages=10)
    drain()
    copy.follow()
    copy.execute(
        f"UPDATE `{copy.name}`.`ems_msg` SET `producer` = 'the replica'",
        f"DELETE FROM `{copy.name}`.`ems_topic_group_log`",
    )
    for columns in (("offset", "producer"), ("offset", "producer", "body")):
        rows = Reading(copy.config, *columns).rows()
        assert sorted(row["offset"] for row in rows) == list(range(10))
        assert {row["producer"] for row in rows} == {"the replica"}
    # Nothing would prove that a replica has all of these.
    deliveries = Reading(copy.config, "first_offset", table="deliveries").rows()
    assert sorted(row["first_offset"] for row in deliveries) == [0, 5]


@contextlib.contextmanager
def once_looked_at(catch_up: Callable[[], object]) -> Iterator[None]:
    """Let the replica catch up when a reader has found it behind."""
    looked = threading.Event()
    look = replica._behind

    def looks(*about: Any) -> Any:
        found = look(*about)
        looked.set()
        return found

    def follow() -> None:
        assert looked.wait(60)
        catch_up()

    follower = threading.Thread(target=follow)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "_behind", looks)
        follower.start()
        yield
    follower.join()


@pytest.mark.mysql
def test_a_replica_that_is_behind_is_waited_for(copy: Copy) -> None:
    sent(messages=3)
    copy.follow()
    sent(messages=7)
    reading = Reading(copy.config, "offset")
    plan = reading.plan()  # on the primary: it knows where the log ends
    assert sum(part.rows for task in plan for part in task.ranges) == 10
    with once_looked_at(copy.follow):
        offsets = [row["offset"] for task in plan for row in reading.task(task)]
    assert sorted(offsets) == list(range(10))


@pytest.mark.mysql
@pytest.mark.parametrize("options", [{}, {"holes": "skip", "purged": "skip"}])
def test_a_replica_that_stays_behind_is_an_error(
    copy: Copy, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "SECONDS", 0.1)
    sent(messages=3)
    copy.follow()
    sent(messages=7)
    with pytest.raises(
        ReplicaBehind, match="orders/0: the replica has the messages before offset 3"
    ):
        Reading(copy.config, "offset", **options).rows()
    # What it has can be read.
    assert len(Reading(copy.config, "offset", end=3).rows()) == 3
    # A topic that is not there yet.
    sent("flights", 1)
    with pytest.raises(ReplicaBehind, match="flights/0"):
        Reading(copy.config, "offset", topic="flights", **options).rows()


@pytest.mark.mysql
def test_what_the_replica_lacks_and_the_primary_has_is_never_skipped(copy: Copy) -> None:
    """A job that goes on at a hole of the log must not take this for one."""
    sent(messages=10)
    copy.follow()
    copy.execute(f"DELETE FROM `{copy.name}`.`ems_msg` WHERE `offset` = 4")
    with pytest.raises(Missing, match="the log has more"):
        Reading(copy.config, "offset", holes="skip", purged="skip").rows()
    Message.objects.filter(offset=4).delete()
    assert len(Reading(copy.config, "offset", holes="skip").rows()) == 9
    Partition.objects.update(first_offset=5)
    with pytest.raises(Missing):
        copy.execute(f"DELETE FROM `{copy.name}`.`ems_msg` WHERE `offset` = 7")
        Reading(copy.config, "offset", holes="skip", purged="skip").rows()


@pytest.mark.mysql
def test_a_replica_differs_from_the_primary_in_what_its_part_says(copy: Copy) -> None:
    with connected(copy.config) as connection:
        assert fetch(connection, "SELECT DATABASE()")[0][0] == django.settings_dict["NAME"]
    connection = connect(copy.config, replica=True)
    assert fetch(connection, "SELECT DATABASE()")[0][0] == copy.name
    connection.close()
    connection = connect(copy.primary, replica=True)
    assert fetch(connection, "SELECT DATABASE()")[0][0] == django.settings_dict["NAME"]
    connection.close()


class Replica:
    """A second server of MySQL that replicates the database of the tests."""

    def __init__(self, config: Config) -> None:
        self.server = MySQL(Programs.find("mysql"), memory_or_disk(1), for_tests=True)
        self.database = django.settings_dict["NAME"]
        self.primary = config

    def __enter__(self) -> Replica:
        self.server.prepare()
        self.server.start()
        self.server.wait()
        path = Path(self.primary.path).with_name("replica.cnf")
        path.touch(mode=0o600)
        text = Path(self.primary.path).read_text()
        path.write_text(f"{text}[replica]\nhost=127.0.0.1\nport={self.server.port}\n")
        self.config = Config.load(str(path))
        self._begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()

    def execute(self, *statements: str) -> None:
        """Run statements on the replica."""
        import MySQLdb

        url = {"host": "127.0.0.1", "port": self.server.port, "user": "root"}
        with contextlib.closing(MySQLdb.connect(**url, autocommit=True)) as connection:
            for statement in statements:
                with contextlib.closing(connection.cursor()) as cursor:
                    cursor.execute(statement)

    def _begin(self) -> None:
        """Create the tables, still empty, and replicate from here on."""
        with connected(self.primary.everywhere()) as connection:
            tables = [fetch(connection, f"SHOW CREATE TABLE `{table}`")[0][1] for table in TABLES]
            ((known,),) = fetch(connection, "SELECT @@GLOBAL.gtid_executed")
        database, settings = self.database, django.settings_dict
        of_these = ", ".join(f"`{database}`.`{table}`" for table in TABLES)
        self.execute(
            "SET GLOBAL server_id = 2",
            f"CREATE DATABASE `{database}`",
            f"USE `{database}`",
            "SET foreign_key_checks = 0",
            *tables,
            "RESET BINARY LOGS AND GTIDS",
            f"SET GLOBAL gtid_purged = '{known.replace(chr(10), '')}'",
            f"CHANGE REPLICATION FILTER REPLICATE_DO_TABLE = ({of_these})",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{settings['HOST']}',"
            f" SOURCE_PORT = {settings['PORT']}, SOURCE_USER = '{settings['USER']}',"
            f" SOURCE_PASSWORD = '{settings['PASSWORD']}', SOURCE_AUTO_POSITION = 1,"
            " GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )


@pytest.mark.mysql
@pytest.mark.one_server
@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_replica_of_the_server_is_read_and_waited_for(config: Config) -> None:
    with connected(config) as connection:
        if not fetch(connection, "SELECT @@log_bin")[0][0]:
            pytest.skip("the server has no binary log")
    with Replica(config) as second:
        sent(messages=500)
        reading = Reading(second.config, "offset", "body")
        assert [row["offset"] for row in reading.rows()] == list(range(500))
        second.execute("STOP REPLICA SQL_THREAD")
        sent(messages=2500)
        plan = reading.plan()
        with once_looked_at(partial(second.execute, "START REPLICA SQL_THREAD")):
            offsets = [row["offset"] for task in plan for row in reading.task(task)]
        assert sorted(offsets) == list(range(3000))


@pytest.mark.any_database
def test_connectorx_reads_from_the_replica_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_x, "find_spec", lambda name: True)
    path = tmp_path / "ems.cnf"
    whole = "[client]\nhost=127.0.0.1\nport=3306\nuser=u\npassword=p\ndatabase=d\n"
    path.write_text(f"{whole}[replica]\nport=3307\n[ems]\nvendor=mysql\n")
    assert connector_x.address(Config.load(str(path))) == "mysql://u:p@127.0.0.1:3307/d"
    # ConnectorX does not encrypt.
    path.write_text(f"{whole}[replica]\nhost=db2.example.org\n[ems]\nvendor=mysql\n")
    assert connector_x.address(Config.load(str(path))) is None


@pytest.mark.any_database
def test_sqlite_has_no_replica(tmp_path: Path) -> None:
    path = tmp_path / "ems.cnf"
    path.write_text("[ems]\nvendor=sqlite\npath=/srv/ems.sqlite3\n[replica]\npath=/srv/copy\n")
    with pytest.raises(BadConfig, match=r"\[replica\]"):
        Config.load(str(path))
