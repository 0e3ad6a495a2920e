"""What EMS says of a log that was rewound, and the jump by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from monitoring.alarms.log import rewinds
from monitoring.alarms.measured import Subject
from streams import Outgoing, consumer, send_many
from streams.admin.alarm import alarm
from streams.errors import OffsetOutOfRange, UnknownPartition
from streams.log.ends import End
from streams.log.rewinds import HIGHEST, MARGIN, jump, newest
from streams.log.sequencer import sequence
from streams.models import Consumer, Cursor, Partition, Rewind, State, Topic, UtcNow
from streams.models.consumer import LEASE
from streams.models.delivery import Delivery
from streams.observe.audit.walk import audit
from streams.observe.diagnoses import WARNING, Diagnosis
from streams.observe.doctor import examine
from streams.operate.rewound import declare
from streams.operate.topic_deletion import TopicDeletion
from streams.retain.purge_floor import kept_from
from streams.testing import drain
from tests.admin.world import run_steps
from tests.commands.conftest import Run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.fixture
def seen() -> list[Any]:
    found: list[Any] = []
    consumer("orders", group="mail", start="earliest")(found.append)
    send_many([Outgoing("orders", n) for n in range(10)])
    drain()
    return found


def told() -> list[Diagnosis]:
    return [one for one in examine("default") if one.name == "rewound"]


def test_an_operator_says_what_nobody_remembers(seen, run: Run):
    shown = run("ems_doctor", "--rewound", "orders/0:14")
    assert "orders/0 goes on at offset 100015." in shown
    assert "Its groups pass 10 … 100014, which no message will have." in shown
    rewind = Rewind.objects.get()
    assert (rewind.known_offset, rewind.noticed_by) == (15, "ems_doctor --rewound")
    send_many([Outgoing("orders", "new")])
    drain()
    assert [(m.offset, m.epoch) for m in seen[9:]] == [(9, 0), (15 + MARGIN, 1)]
    assert audit("default") == []


def test_what_the_log_has_reached_needs_nothing(seen, run: Run):
    assert "orders/0 has reached offset 10: nothing" in run("ems_doctor", "--rewound", "orders/0:9")
    assert not Rewind.objects.exists()
    assert Partition.objects.get().epoch == 0


@pytest.mark.parametrize("place", ["orders", "orders/0", "orders/0:-1", "orders/1:5", "cakes/0:5"])
def test_a_place_that_is_none_is_refused(seen, run: Run, place):
    with pytest.raises(CommandError, match=r"orders/0:1200|There is no partition"):
        run("ems_doctor", "--rewound", place)
    with pytest.raises(UnknownPartition):
        declare(place, "default")


def test_an_offset_that_no_log_reaches_is_refused(seen):
    with pytest.raises(OffsetOutOfRange):
        declare(f"orders/0:{HIGHEST}", "default")
    declare(f"orders/0:{HIGHEST - 1}", "default")  # a jump from there still fits into the column
    assert Partition.objects.get().next_offset == HIGHEST + MARGIN


def test_the_doctor_tells_of_it_for_a_week(seen):
    assert told() == []
    declare("orders/0:14", "default")
    (found,) = told()
    assert found.level == WARNING
    assert found.text.startswith("orders/0 had reached offset 15, and ended at 10 at ")
    assert found.text.endswith("10 … 100014 are left out.")
    Rewind.objects.update(noticed_at=UtcNow(-timedelta(days=8)))
    assert told() == []


def test_every_page_of_the_admin_says_so_for_a_day(seen):
    Consumer.objects.create(
        client_id="c", group_id=Cursor.objects.get().group_id, lease_until=UtcNow(LEASE)
    )
    run_steps()
    assert alarm("default").text == ""
    declare("orders/0:14", "default")
    assert alarm("default").text.startswith("The log of orders/0 was rewound")
    Rewind.objects.update(noticed_at=UtcNow(-timedelta(days=2)))
    assert alarm("default").text == ""


def test_an_alarm_counts_it_for_a_day(seen):
    assert rewinds("default") == {}
    declare("orders/0:14", "default")
    declare(f"orders/0:{20 + MARGIN}", "default")
    (number, detail) = rewinds("default")[Subject("orders")]
    assert (number, detail) == (2.0, f"orders/0@{15 + MARGIN} … {20 + 2 * MARGIN}")
    Rewind.objects.update(noticed_at=UtcNow(-timedelta(days=2)))
    assert rewinds("default") == {}


def test_a_damaged_partition_does_not_jump(seen):
    """ems_partition alone is old: the messages are there, and no group may pass them."""
    Partition.objects.update(next_offset=4)
    partition = Partition.objects.get()
    assert jump(partition.pk, End(10, 0), "default") is None
    assert not Delivery.objects.filter(state=State.SKIPPED).exists()


def test_with_the_topic_its_rewinds_are_deleted(seen):
    declare("orders/0:14", "default")
    deletion = TopicDeletion(Topic.objects.get(), "default", force=True)
    deletion.close()
    deletion.finish()
    assert not Rewind.objects.exists()


def test_a_second_jump_may_begin_where_the_first_one_ended(seen):
    """Nothing was sent in between: what is left out is one stretch, of two epochs."""
    declare("orders/0:14", "default")
    declare(f"orders/0:{20 + MARGIN}", "default")
    send_many([Outgoing("orders", "new")])
    sequence("default")
    drain()
    assert [(m.offset, m.epoch) for m in seen[10:]] == [(21 + 2 * MARGIN, 2)]
    assert audit("default") == []


@pytest.mark.parametrize(("kept", "floor"), [(1, 15 + MARGIN), (3, 8), (11, 0), (12, -1)])
def test_retention_by_number_counts_messages(seen, kept, floor):
    declare("orders/0:14", "default")
    send_many([Outgoing("orders", "new")])
    sequence("default")
    assert newest(Partition.objects.get(), kept, "default") == floor
    Topic.objects.update(retention_count=kept)
    partition = Partition.objects.get()
    assert kept_from(partition, partition.topic, "default").due == max(0, floor)
