"""Messages that leave the inbox while it is being emptied: no hole, and no pass without end."""

from __future__ import annotations

import pytest

from streams import Outgoing, consumer, send, send_many
from streams.log.sequencer import BUSY_SECONDS, CANCELLED_AT_MOST, Pass, sequence
from streams.models import Message, Partition
from streams.observe.audit.walk import audit
from tests.consuming import Process
from tests.faults import statements

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]

COUNT = 3


class Cancelling:
    """Takes the newest message out of the inbox between each read of it and the update."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.rounds = 0

    def __call__(self, execute, sql, params, many, context):
        if sql.startswith("UPDATE `ems_msg`"):
            self.rounds += 1
            if self.left:
                self.left -= 1
                # Beside the wrapper. The pass rolls it back with what it did itself.
                raw = context["connection"].connection.cursor()
                raw.execute("SELECT MAX(`id`) FROM `ems_msg`")
                raw.execute(f"DELETE FROM `ems_msg` WHERE `id` = {raw.fetchone()[0]}")
                raw.close()
        return execute(sql, params, many, context)


@pytest.fixture
def inbox() -> None:
    send_many([Outgoing("orders", n) for n in range(COUNT)])


def offsets() -> list[int | None]:
    return list(Message.objects.order_by("id").values_list("offset", flat=True))


def test_a_pass_that_is_disturbed_again_and_again_lets_others_have_the_partition(inbox):
    disturbance = Cancelling(times=5 * CANCELLED_AT_MOST)
    with statements(disturbance):
        assert sequence("default") == Pass(0, busy=True)
    assert disturbance.rounds == CANCELLED_AT_MOST == 10
    assert offsets() == [None] * COUNT
    assert Partition.objects.get().next_offset == 0
    # When it is quiet again, all of them get their offsets.
    assert sequence("default") == Pass(COUNT)
    assert offsets() == list(range(COUNT))


def test_a_pass_that_is_disturbed_for_a_while_repeats_itself_and_leaves_no_hole(inbox):
    disturbance = Cancelling(times=CANCELLED_AT_MOST - 1)
    with statements(disturbance):
        assert sequence("default") == Pass(COUNT)
    assert offsets() == list(range(COUNT))
    assert audit("default") == []


def test_the_poller_looks_again_very_soon():
    consumer("orders", group="mail")(print)
    process = Process("mail")
    send("orders", 1)
    with statements(Cancelling(times=CANCELLED_AT_MOST)):
        assert process.poller.step() == BUSY_SECONDS
    process.poller.step()
    assert offsets() == [0]
