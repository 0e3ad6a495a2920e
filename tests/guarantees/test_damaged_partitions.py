"""A partition that cannot be sequenced stops nobody else, and goes on once it is repaired.

After a restore of some tables only, next_offset is lower than offsets that are in the table.
"""

from __future__ import annotations

import logging

import pytest
from django.db import connection

from streams import Outgoing, consumer, send, send_many
from streams.admin.alarm import alarm
from streams.consume.subscription import subscribe
from streams.errors import LogDamaged
from streams.log import sequencer
from streams.log.sequencer import Pass, sequence
from streams.models import ConsumerGroup, Message, Partition
from streams.observe.audit.walk import audit
from streams.observe.diagnoses import ERROR
from streams.observe.doctor import examine
from tests.admin.world import run_steps
from tests.consuming import registered
from tests.processes import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(sequencer, "_damaged", {})


@pytest.fixture
def damaged() -> Partition:
    """The partition of the topic `bad`: offsets 0 … 4 are there, and the next one is 2."""
    send_many([Outgoing("bad", n) for n in range(5)])
    send("good", 0)
    sequence("default")
    partition = Partition.objects.get(topic__name="bad")
    Partition.objects.filter(pk=partition.pk).update(next_offset=2)
    send_many([Outgoing("bad", n) for n in range(5, 8)])
    return partition


def waiting(topic):
    return Message.objects.inbox().filter(partition__topic__name=topic).count()


def diagnosis():
    (found,) = [found for found in examine("default") if found.name == "partition"]
    return found


def repair():
    with connection.cursor() as cursor:
        cursor.execute(diagnosis().hint)


def test_the_other_partitions_are_sequenced(damaged, caplog):
    send("good", 1)
    assert sequence("default").sequenced == 1
    assert (waiting("good"), waiting("bad")) == (0, 3)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "bad/0 cannot be sequenced" in record.message
    assert "ems_doctor" in record.message


def test_it_is_tried_again_at_intervals_only(damaged, caplog, monkeypatch):
    for _ in range(3):
        assert sequence("default") == Pass()
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
    monkeypatch.setattr(sequencer, "DAMAGED_SECONDS", 0.0)
    sequencer._damaged.clear()
    for _ in range(2):
        sequence("default")
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 3


def test_when_it_is_repaired_it_goes_on_and_nothing_is_lost(damaged, caplog, monkeypatch):
    sequence("default")
    found = diagnosis()
    assert found.level == ERROR
    assert "bad/0 cannot be sequenced: its next offset is 2" in found.text
    repair()
    assert not [found for found in examine("default") if found.name == "partition"]
    monkeypatch.setattr(sequencer, "_damaged", dict.fromkeys(sequencer._damaged, 1e-9))
    assert sequence("default").sequenced == 3
    assert "bad/0 is sequenced again" in caplog.text
    offsets = Message.objects.filter(partition=damaged).order_by("offset")
    assert list(offsets.values_list("offset", flat=True)) == list(range(8))
    assert audit("default") == []


def test_the_doctor_and_the_admin_say_it_before_anything_is_sent():
    send("bad", 1)
    sequence("default")
    assert "cannot be sequenced" not in alarm("default").text
    Partition.objects.update(next_offset=0)
    assert diagnosis().level == ERROR
    run_steps()
    assert alarm("default").text.startswith("bad/0 cannot be sequenced")


def test_a_group_that_would_start_at_its_latest_message_is_left_out(damaged):
    consumer("bad", group="mail", start="latest")(print)
    with pytest.raises(LogDamaged, match="mail on bad"):
        subscribe(registered("bad", "mail"), "default")
    assert not ConsumerGroup.objects.exists()


APP = """
import django
django.setup()
from django.core.management import call_command
from streams import consumer
from streams.log import sequencer

sequencer.DAMAGED_SECONDS = 0.5

@consumer("good", group="one", start="earliest")
def one(message):
    print("good", message.body, flush=True)

@consumer("bad", group="two", start="earliest")
def two(message):
    print("bad", message.body, flush=True)

call_command("ems_consume", "--threads", "1")
"""


def test_consumer_processes_run_on_and_read_it_once_it_is_repaired(damaged, spawn):
    child = spawn(APP)
    child.expect("bad/0 cannot be sequenced")
    send("good", 1)
    child.expect("good 1")
    repair()
    child.expect("bad/0 is sequenced again")
    child.expect("bad 7")
    wait_for(lambda: waiting("bad") == 0)
    child.terminate()
    assert child.wait() == 0
    assert audit("default") == []
