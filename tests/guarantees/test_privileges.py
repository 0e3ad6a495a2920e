"""The accounts of docs/guides/deployment.md can do what they are for, with exactly these rights."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from streams import send
from streams.log.sequencer import sequence
from streams.models import Delivery, Message, Reader, State
from tests.docs.documents import DOCS, blocks
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
    pytest.mark.usefixtures("clean_registry"),
]
PAGE = DOCS / "guides" / "deployment.md"

# What web processes and consumers do, in one process.
WORK = """
from datetime import timedelta
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from streams import consumer, send
from streams.models import Delivery, Topic, UtcNow
from streams.steps.sweep import sweep

@consumer("orders", group="mail", start="earliest")
def handle(message):
    if message.body == "fails":
        raise ValueError("no")
    print("handled", message.body)

with transaction.atomic():
    send("orders", "one", key="k", dedup_key="once")
    send("orders", "fails")
call_command("ems_topics", "grow", "orders", "--partitions", "2", "--yes")
call_command("ems_consume", "--drain")
Delivery.objects.update(state="START", deadline=UtcNow() - timedelta(hours=1))
sweep("default")
call_command("ems_groups", "reset", "mail", "--to", "earliest", "--yes")
call_command("ems_groups", "delete", "mail", "--yes", "--force")
Topic.objects.update(retention_count=0)
call_command("ems_purge")
try:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE ems_more (id INT)")
except OperationalError as error:
    print("refused", error.args[0])
"""


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def grants(name: str) -> list[str]:
    """Return the statements of the page that give rights to this account."""
    pattern = rf"^GRANT .* TO '{name}'@'%';$"
    return [
        line
        for text in blocks(PAGE, "sql")
        for line in re.findall(pattern, text, flags=re.MULTILINE)
    ]


Account = Callable[[str, str], dict[str, str]]


@pytest.fixture
def account() -> Iterator[Account]:
    """Make an account of the page on a schema; return what makes a child process use it."""
    made: list[str] = []

    def make(name: str, schema: str) -> dict[str, str]:
        mine = f"{name}_{os.getpid()}"
        made.append(mine)
        execute(f"CREATE USER '{mine}'@'%' IDENTIFIED BY 'plain'")
        statements = grants(name)
        assert statements
        for one in statements:
            execute(one.replace("`shop`", f"`{schema}`").replace(f"'{name}'", f"'{mine}'"))
        given = connection.settings_dict
        url = f"mysql://{mine}:plain@{given['HOST']}:{given['PORT']}/"
        return {f"EMS_TEST_{os.environ['EMS_TEST_DB'].upper()}_URL": url}

    yield make
    for mine in made:
        execute(f"DROP USER '{mine}'@'%'")


def test_web_and_consumers_work_with_the_rights_on_rows_alone(
    account: Account, spawn: Spawn
) -> None:
    as_shop = account("shop", str(connection.settings_dict["NAME"]))
    said = spawn(WORK, env=as_shop).succeed()
    assert "handled one" in said
    assert "refused 1142" in said
    assert not Delivery.objects.filter(state=State.START).exists()
    assert not Message.objects.exists(), "they are purged"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_migrate_makes_the_tables_with_its_rights_alone(account: Account, spawn: Spawn) -> None:
    schema = f"{connection.settings_dict['NAME']}_made"
    execute(f"CREATE DATABASE `{schema}` CHARACTER SET utf8mb4")
    try:
        as_migrate = account("shop_migrate", schema) | {"EMS_TEST_DB_NAME": schema}
        spawn.command("migrate", "ems", env=as_migrate).succeed(300)
        spawn.command("migrate", "ems_monitoring", env=as_migrate).succeed(300)
        spawn.command("ems_topics", "list", env=as_migrate).succeed()
        spawn.command("migrate", "ems", "zero", env=as_migrate).succeed(300)
    finally:
        execute(f"DROP DATABASE `{schema}`")


def test_spark_reads_and_notes_where_it_is_with_its_rights_alone(
    account: Account, tmp_path: Path
) -> None:
    """The reader of the source itself, which Spark would drive; it needs no JVM."""
    pytest.importorskip("pyspark")
    from sparkjobs.config import Config
    from sparkjobs.database import connected, fetch
    from sparkjobs.source.known import KnownReader
    from sparkjobs.source.request import SourceRequest
    from sparkjobs.source.schemas import MESSAGES, only
    from tests.spark.conftest import options_for

    send("orders", "one")
    sequence("default")
    as_spark = account("ems_spark", str(connection.settings_dict["NAME"]))
    (address,) = as_spark.values()
    url = urlsplit(address)
    given = {**connection.settings_dict, "USER": url.username, "PASSWORD": url.password}
    file = tmp_path / "ems.cnf"
    file.touch(mode=0o600)
    file.write_text(options_for(given, tmp_path))
    options = {"config": str(file), "topic": "orders", "protect": "true"}
    reader = KnownReader(SourceRequest.of(options), only(MESSAGES, "offset", "body"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    read = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in read) == 1
    assert Reader.objects.get().protect
    with pytest.raises(Exception, match="1142"), connected(Config.load(str(file))) as theirs:
        list(fetch(theirs, "SELECT * FROM ems_token"))
