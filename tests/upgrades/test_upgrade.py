"""What a release has written is there after the migrations, and nothing stops meanwhile."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.processes import ROOT, Spawn, wait_for
from tests.streams.test_migrations import described, managed
from tests.upgrades.dump import path_of, releases

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.every_database]

SEND = """
import sys
from pathlib import Path
from django.db import transaction
from streams import send
name, end, number = sys.argv[1], Path(sys.argv[2]), 0
while not end.exists():
    with transaction.atomic():
        send("upgrade", {"n": f"{name}-{number}"}, key=f"key-{number % 3}")
    number += 1
    if number == 1:
        print("sending", flush=True)
print("sent", number)
"""
CONSUME = """
import sys
from django.core.management import call_command
from streams import consumer
@consumer("upgrade", group="counter")
def count(message):
    with open(sys.argv[1], "a") as handled:
        handled.write(f"{message.body['n']} {message.offset}\\n")
call_command("ems_consume")
"""


def rows(database: BaseDatabaseWrapper) -> dict[str, int]:
    """Return how many rows each table of EMS has."""
    with database.cursor() as cursor:
        tables = database.introspection.table_names(cursor)
        found = {}
        for table in sorted(name for name in tables if name.startswith("ems_")):
            cursor.execute(f"SELECT COUNT(*) FROM `{table}`")
            found[table] = cursor.fetchone()[0]
    return found


def test_a_release_is_kept_with_rows_in_every_table(kept: BaseDatabaseWrapper) -> None:
    assert [table for table, number in rows(kept).items() if not number] == []


def test_every_release_is_kept_for_each_database() -> None:
    assert releases()
    for release in releases():
        for vendor in ("mariadb", "mysql", "sqlite"):
            assert path_of(release, vendor).exists()


def test_a_release_migrates_to_the_tables_of_today_and_keeps_its_rows(
    kept: BaseDatabaseWrapper, kept_env: dict[str, str], spawn: Spawn
) -> None:
    before = rows(kept)
    spawn.command("migrate", env=kept_env).succeed()
    after = rows(kept)
    assert [table for table, number in before.items() if after.get(table, 0) < number] == []
    found, wanted = described(kept), described(connection)
    for table in {model._meta.db_table for model in managed()}:
        assert found[table] == wanted[table]


def code_of(release: str, folder: Path) -> dict[str, str]:
    """Return the environment in which a process runs the code of a release.

    Until that is tagged it is the code of today: then nothing is shown of two releases side by
    side, but the rows of the kept one are handled all the same.
    """
    words = ["git", "archive", f"v{release}", "streams", "monitoring", "sparkjobs", "tests"]
    archived = subprocess.run(words, cwd=ROOT, capture_output=True)
    if archived.returncode:
        return {}
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=archived.stdout, check=True)
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_messages_go_on_while_a_release_is_migrated_and_old_and_new_processes_run(
    kept: BaseDatabaseWrapper,
    kept_env: dict[str, str],
    release: str,
    spawn: Spawn,
    tmp_path: Path,
) -> None:
    handled, end = tmp_path / "handled", tmp_path / "end"
    handled.touch()
    old = kept_env | code_of(release, tmp_path / "code")
    senders = [spawn(SEND, "old", end, env=old)]
    consumers = [spawn(CONSUME, handled, env=old)]
    senders[0].expect("sending")
    wait_for(lambda: "old-0 " in handled.read_text(), consumers[0].text)
    spawn.command("migrate", env=kept_env).succeed()
    senders.append(spawn(SEND, "new", end, env=kept_env))
    consumers.append(spawn(CONSUME, handled, env=kept_env))
    senders[1].expect("sending")
    wait_for(lambda: "new-0 " in handled.read_text(), consumers[1].text)
    before = handled.read_text().count("\n")
    wait_for(lambda: handled.read_text().count("\n") > before + 50)  # both go on
    end.touch()
    sent = {f"kept-{number}" for number in range(10, 20)}
    for name, sender in zip(("old", "new"), senders, strict=True):
        number = int(sender.succeed().split()[-1])
        sent |= {f"{name}-{at}" for at in range(number)}

    def missing() -> set[str]:
        return sent - {line.split()[0] for line in handled.read_text().splitlines()}

    wait_for(lambda: not missing(), lambda: f"missing: {sorted(missing())[:10]}")
    for consumer in consumers:
        consumer.terminate()
        consumer.succeed()
    places = [int(line.split()[1]) for line in handled.read_text().splitlines()]
    # Nobody died and no lease was lost: each is handled once, and no offset is left out.
    assert sorted(places) == list(range(10, 10 + len(sent)))
