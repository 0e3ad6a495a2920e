"""A replica has what its primary has, though the binary log has each body once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("MySQLdb")

from tests.lab.ha.clusters import CLUSTERS, DATABASE, ask, run
from tests.processes import ROOT, wait_for
from tests.servers import Server

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(300)]

# Sends, sequences and purges as processes of EMS do, and prints what its session had.
LIFE = """\
import os, django
django.setup()
from django.core.management import call_command
from django.db import connection
from streams import Outgoing, send_many
from streams.deliver.poller import Poller
from streams.models import ConsumerGroup, Cursor, Partition, Topic
from streams.retain.purge import Purge

call_command("migrate", verbosity=0)
send_many([Outgoing("orders", os.urandom(6000), headers={"n": str(n)}) for n in range(20)])
Poller("default").look([])
with connection.cursor() as cursor:
    cursor.execute("SELECT @@SESSION.binlog_row_image")
    print(cursor.fetchone()[0])
connection.close()
partition = Partition.objects.get()
group = ConsumerGroup.objects.create(topic=partition.topic, name="mail")
Cursor.objects.create(group=group, partition=partition, next_offset=20, start_offset=20)
Topic.objects.update(retention_count=5)
(outcome,) = Purge("default").run()
print(outcome.deleted)
"""
LOG = (
    f"SELECT id, `offset`, sequenced_at, SHA2(body, 256) AS body, headers FROM {DATABASE}.ems_msg"
    " ORDER BY id"
)


@pytest.mark.parametrize("name", ["semisync", "mariadb"])
def test_a_replica_has_every_message_as_it_is_on_the_primary(name: str) -> None:
    with CLUSTERS[name]() as cluster:
        run(cluster.primary, f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        url = f"mysql://{cluster.user}@127.0.0.1:{cluster.primary.port}/"
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "EMS_TEST_DB": cluster.vendor,
            f"EMS_TEST_{cluster.vendor.upper()}_URL": url,
            "EMS_TEST_DB_NAME": DATABASE,
        }
        command = [sys.executable, "-W", "ignore", "-c", LIFE]
        lived = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert lived.stdout.split() == ["NOBLOB", "15"], lived.stdout + lived.stderr
        (replica,) = cluster.others()
        expected = log_of(cluster.primary)
        assert [row["offset"] for row in expected] == [15, 16, 17, 18, 19]
        wait_for(lambda: log_of(replica) == expected, "the replica has the same log")


def log_of(server: Server) -> Sequence[dict[str, Any]]:
    return ask(server, LOG)
