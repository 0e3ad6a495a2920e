"""The plans of resets and replays: they run under the lock of a partition."""

from __future__ import annotations

import pytest

from streams.models import Cursor, Message, RetryMessage
from streams.observe.trace import trace
from streams.operate.replay import Span, cancel, replays, start
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from tests.plans.seed import LOG, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


@pytest.mark.parametrize("to", ["earliest", "latest", "-100"])
def test_a_reset_and_its_undo_read_their_own_rows_only(seeded: Seed, to: str) -> None:
    with explained() as statements:
        Reset(seeded.group, towards(Target.parse(to)), "default", force=True).run()
        Reset(seeded.group, None, "default", force=True).run()
    statements.assert_sound()
    for locking in (s for s in statements if "FOR UPDATE" in s.sql):
        # Rows of others that such a statement reads, it would lock or wait for.
        expected = {"PRIMARY", "ems_partition_number", "ems_retry_place"}
        assert {step.key for step in locking.steps} <= expected, locking


def test_the_retries_that_a_reset_takes_are_named_by_key(seeded: Seed) -> None:
    RetryMessage.objects.filter(offset__lt=LOG // 4).delete()
    with explained() as statements:
        Reset(seeded.group, towards(Target.parse("earliest")), "default", force=True).run()
    taken = statements.only("DELETE", "ems_retry_msg")
    assert taken.indexes == ["ems_retry_msg.PRIMARY"]
    recorded = statements.only("INSERT INTO `ems_topic_group_log`")
    assert recorded.indexes == ["ems_retry_msg.ems_retry_place"]


def test_a_time_is_found_through_the_log(seeded: Seed) -> None:
    middle = Message.objects.get(partition=seeded.partition, offset=LOG // 2)
    assert middle.sequenced_at
    with explained() as statements:
        Target(time=middle.sequenced_at).offset(seeded.partition)
    statements.assert_sound()
    assert {index for s in statements for index in s.indexes} <= {
        "ems_msg.ems_msg_log",
        "ems_msg.ems_msg_inbox",
    }


def test_a_replay_is_begun_shown_and_cancelled_by_key(seeded: Seed) -> None:
    group, partition = seeded.group, Cursor.objects.get(group=seeded.group).partition
    with explained() as statements:
        number = start(group, [Span(partition, 10, 20)], "default")
        replays([group], "default")
        cancel(group, number, "default")
    statements.assert_sound()


def test_the_trace_finds_a_long_skip_among_few(seeded: Seed) -> None:
    Reset(seeded.group, towards(Target.parse("latest")), "default", force=True).run()
    partition = Cursor.objects.get(group=seeded.group).partition
    message = Message.objects.select_related("partition").get(partition=partition, offset=LOG - 1)
    with explained() as statements:
        found = [one.state for one in trace(message)]
    assert "skipped" in found
    by_state = statements.only("`ems_topic_group_log`.`state` = %s")
    assert by_state.indexes == ["ems_topic_group_log.ems_log_open"]
    statements.assert_sound()
