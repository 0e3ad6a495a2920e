"""The doctor on indexes, blocked partitions and limits."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from streams import Outgoing, consumer, send_many
from streams.log.sequencer import sequence
from streams.models import ConsumerGroup, Message, UtcNow
from streams.observe.backlogs import blocked
from streams.observe.diagnoses import ERROR, OK, WARNING
from streams.observe.doctor import examine
from streams.observe.indexes import indexes
from streams.observe.mysql_server import Server
from streams.testing import drain
from tests.consuming import MINUTE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_doctor_looks_at_the_indexes() -> None:
    assert [d.level for d in examine("default") if d.name == "index"] == [OK]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("table", "name"), [("ems_retry_msg", "ems_retry_due"), ("ems_dedup", "ems_dedup_message")]
)
def test_a_missing_index_is_an_error_with_the_statement_that_makes_it(
    table: str, name: str
) -> None:
    on_table = f" ON {table}" if connection.vendor == "mysql" else ""
    execute(f"DROP INDEX {name}{on_table}")
    (found,) = indexes("default")
    assert (found.level, found.name) == (ERROR, "index")
    assert f"{table} has no index {name}" in found.text
    execute(found.hint)
    assert [d.level for d in indexes("default")] == [OK]


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True)
def test_an_invisible_index_is_an_error_with_the_statement_that_shows_it() -> None:
    hidden = "IGNORED" if Server("default").is_mariadb else "INVISIBLE"
    execute(f"ALTER TABLE ems_msg ALTER INDEX ems_msg_inbox {hidden}")
    (found,) = indexes("default")
    assert (found.level, found.name) == (ERROR, "index")
    assert "ems_msg_inbox of ems_msg is invisible" in found.text
    execute(found.hint)
    assert [d.level for d in indexes("default")] == [OK]


def failing_at(bad: int) -> None:
    @consumer("orders", group="ledger", ordered=True)
    def handle(message):
        if message.body == bad:
            raise ValueError("no")

    send_many([Outgoing("orders", n) for n in range(10)])
    drain()


def test_a_blocked_partition_is_said_with_the_way_out() -> None:
    failing_at(4)
    (found,) = blocked("default")
    assert (found.level, found.name) == (WARNING, "blocked")
    assert "orders/0@4 has failed, attempt 2 is next; 5 messages wait" in found.text
    words = found.hint.rpartition(": ")[2]
    call_command(*words.split(), "--yes", stdout=StringIO())
    drain()
    assert list(blocked("default")) == []


def test_a_partition_that_has_passed_its_failure_is_not_blocked() -> None:
    failing_at(99)
    assert list(blocked("default")) == []


def limited(*words: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("ems_doctor", "--ready", *words, stdout=out, stderr=StringIO())
    except SystemExit as ended:
        return out.getvalue(), int(str(ended.code))
    return out.getvalue(), 0


def test_a_group_beyond_a_limit_is_an_error() -> None:
    failing_at(99)
    send_many([Outgoing("orders", n) for n in range(3)])
    sequence("default")
    Message.objects.filter(offset=10).update(sequenced_at=UtcNow(-2 * MINUTE))
    assert limited()[1] == 0
    assert limited("--max-age", "5m", "--max-behind", "3") == (limited("--max-age", "5m")[0], 0)
    said, status = limited("--max-behind", "2")
    assert status == 1
    assert "ledger on orders is 3 messages behind, more than 2" in said
    said, status = limited("--max-age", "1m")
    assert status == 1
    assert "The oldest unfinished message of ledger on orders is 0:02:0" in said
    assert ConsumerGroup.objects.count() == 1
