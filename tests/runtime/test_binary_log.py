"""The binary log has a body once: sequencing and purging leave it out, in sessions of EMS alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction

from streams import consumer, send
from streams.database.binary_log import bodies_left_out, leave_bodies_out
from streams.log import sequencer
from streams.log.sequencer import sequence
from streams.models import Cursor, Message, Topic
from streams.observe.diagnoses import OK
from streams.observe.doctor import examine
from streams.retain.purge import Purge
from streams.steps.sequence import sequence_all
from streams.tasks import purge as purge_task
from tests.consuming import Process
from tests.sessions import Session

pytestmark = [
    pytest.mark.mysql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

ACCOUNT = "ems_plain"
BODY = {"sku": "A" * 3000}


def variable(name: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@{name}")
        return cursor.fetchone()[0]


def image() -> str:
    return str(variable("SESSION.binlog_row_image"))


@pytest.fixture
def log() -> Iterator[None]:
    """Only where there is a binary log: MariaDB has none by default."""
    if not variable("GLOBAL.log_bin"):
        pytest.skip("no binary log")
    connection.close()
    assert image() == "FULL"
    yield
    connection.close()


@pytest.fixture
def plain_account(
    second_connection: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let the project come as an account that has all rights on its tables, and no other."""
    root = second_connection()
    name = connection.settings_dict["NAME"]
    root.execute(f"DROP USER IF EXISTS '{ACCOUNT}'@'%'")
    root.execute(f"CREATE USER '{ACCOUNT}'@'%' IDENTIFIED BY 'plain'")
    root.execute(f"GRANT ALL ON `{name}`.* TO '{ACCOUNT}'@'%'")
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "USER", ACCOUNT)
        patch.setitem(connection.settings_dict, "PASSWORD", "plain")
        yield
    connection.close()
    root.execute(f"DROP USER '{ACCOUNT}'@'%'")


def handled(count: int) -> None:
    """Fill a log that retention does not keep, and that its group has read."""
    consumer("orders", group="mail")(lambda message: None)
    Process("mail")
    for _ in range(count):
        send("orders", BODY)
    sequence("default")
    Cursor.objects.update(next_offset=count, start_offset=count)
    Topic.objects.update(retention_count=0)


@pytest.mark.usefixtures("log")
def test_the_poller_asks_once_when_there_is_something_to_sequence(
    django_assert_num_queries: Any,
) -> None:
    consumer("orders", group="mail")(lambda message: None)
    process = Process("mail")
    process.poller.step()
    assert image() == "FULL"  # nothing to sequence, nothing asked
    send("orders", BODY)
    process.poller.step()
    assert image() == "NOBLOB"
    assert not Message.objects.inbox().exists()
    with django_assert_num_queries(0):
        leave_bodies_out("default")
    connection.close()
    send("orders", BODY)
    process.poller.step()
    assert image() == "NOBLOB"  # on the new connection, too


@pytest.mark.usefixtures("log")
def test_a_purge_leaves_its_connection_as_it_was() -> None:
    handled(3)
    seen: list[str] = []
    work = Purge("default", say=lambda name, rows: seen.append(image()))
    (outcome,) = work.run()
    assert outcome.deleted == 3
    assert set(seen) == {"NOBLOB"}
    assert image() == "FULL"
    seen.clear()
    work.delete_old_rows()
    assert set(seen) <= {"NOBLOB"}
    assert image() == "FULL"


@pytest.mark.usefixtures("log")
def test_beat_leaves_its_connection_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    pass_ = sequencer.sequence_locked

    def spied(*args: Any, **kwargs: Any) -> Any:
        seen.append(image())
        return pass_(*args, **kwargs)

    monkeypatch.setattr(sequencer, "sequence_locked", spied)
    send("orders", BODY)
    assert sequence_all("default") == 1
    assert seen == ["NOBLOB"]
    assert image() == "FULL"
    purge_task()
    assert image() == "FULL"


@pytest.mark.usefixtures("log")
def test_a_failure_in_the_block_leaves_the_connection_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), bodies_left_out("default") as done:
        assert done
        assert image() == "NOBLOB"
        raise ZeroDivisionError
    assert image() == "FULL"
    with transaction.atomic():
        with bodies_left_out("default"):
            assert image() == "NOBLOB"
        assert image() == "FULL"


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("chosen", ["MINIMAL", "NOBLOB"])
def test_what_the_project_has_chosen_stays(chosen: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_row_image = '{chosen}'")
    with bodies_left_out("default") as done:
        assert not done
        assert image() == chosen
    assert image() == chosen
    leave_bodies_out("default")
    assert image() == chosen


@pytest.mark.usefixtures("log", "plain_account")
def test_without_the_grant_all_goes_on_as_before() -> None:
    handled(2)
    consumer("orders", group="other")(lambda message: None)
    process = Process("mail")
    send("orders", BODY)
    process.poller.step()
    assert not Message.objects.inbox().exists()
    assert image() == "FULL"
    (outcome,) = Purge("default").run()
    assert outcome.deleted
    assert image() == "FULL"


def diagnosed() -> Any:
    (found,) = [one for one in examine("default") if one.name == "binlog"]
    assert found.level == OK
    return found


@pytest.mark.usefixtures("log")
def test_the_doctor_says_that_bodies_are_left_out() -> None:
    found = diagnosed()
    assert "each body once" in found.text
    assert "GRANT" not in found.hint
    assert image() == "FULL"


@pytest.mark.usefixtures("log", "plain_account")
def test_the_doctor_names_the_grant_that_is_missing(vendor: str) -> None:
    found = diagnosed()
    assert "each body four times" in found.text
    grant = "BINLOG ADMIN" if vendor == "mariadb" else "SESSION_VARIABLES_ADMIN"
    assert f"GRANT {grant}" in found.hint


def test_where_there_is_no_binary_log_nothing_is_changed() -> None:
    if variable("GLOBAL.log_bin"):
        pytest.skip("there is one")
    with bodies_left_out("default") as done:
        assert not done
    leave_bodies_out("default")
    assert image() == "FULL"


def test_connections_of_the_project_stay_as_they_are() -> None:
    """What a handler, or a request, writes is in the log as the project wants it."""
    found: list[str] = []

    @consumer("orders", group="mail")
    def handle(message: Any) -> None:
        found.append(image())

    process = Process("mail")
    send("orders", BODY)
    sequence("default")
    process.worker.step()
    assert found == [str(variable("GLOBAL.binlog_row_image"))]
    assert connections["default"] is not None
