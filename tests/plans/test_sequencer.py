"""The plans of the sequencer: all from ems_msg_inbox, in its order, without a sort."""

from __future__ import annotations

import pytest

from streams.log.sequencer import sequence
from streams.models import Message
from tests.plans.seed import DUE, INBOX, LOG, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_an_idle_look_jumps_from_partition_to_partition(seeded: Seed) -> None:
    Message.objects.inbox().filter(due_at__year__lt=2000).update(due_at=None)
    with explained() as statements:
        sequence("default")
    look = statements.on("ems_msg")[0]
    (step,) = look.steps
    # A loose index scan: what is prepared or due later is not stepped over.
    assert look.indexes == ["ems_msg.ems_msg_inbox"], look
    assert "Using index for group-by" in step.extra, look


def test_a_pass_reads_the_inbox_from_its_index_in_order(seeded: Seed) -> None:
    with explained() as statements:
        assert sequence("default").sequenced == len(seeded.partitions) * (INBOX + DUE)
    statements.assert_sound()
    reads = [s for s in statements.on("ems_msg") if "SKIP LOCKED" not in s.sql]
    assert {tuple(s.indexes) for s in reads} == {("ems_msg.ems_msg_inbox",)}
    assert all("Using index" in s.steps[0].extra for s in reads), statements
    immediate = next(s for s in reads if "ORDER BY `id`" in s.sql)
    due = next(s for s in reads if "ORDER BY `due_at`" in s.sql)
    assert immediate.steps[0].access == "ref"  # one constant due_at: in the order of ids
    assert due.steps[0].access == "range"  # not everything that is delayed


def test_what_is_due_is_locked_by_primary_key(seeded: Seed) -> None:
    with explained() as statements:
        sequence("default")
    locks = [s for s in statements.on("ems_msg") if "SKIP LOCKED" in s.sql]
    assert len(locks) == len(seeded.partitions)
    assert {tuple(s.indexes) for s in locks} == {("ems_msg.PRIMARY",)}


def test_where_nothing_is_due_a_pass_locks_no_entry_of_the_inbox(seeded: Seed) -> None:
    """It would lock what has left the inbox, too, for as long as a snapshot keeps that."""
    Message.objects.inbox().filter(due_at__year__gt=2000).update(due_at=None)
    with explained() as statements:
        assert sequence("default").sequenced
    assert not [s for s in statements.on("ems_msg") if "LOCK" in s.sql]


def test_offsets_are_given_by_primary_key(seeded: Seed) -> None:
    with explained() as statements:
        sequence("default")
    updates = statements.on("ems_msg", "UPDATE")
    assert len(updates) == len(seeded.partitions)
    assert {tuple(s.indexes) for s in updates} == {("ems_msg.PRIMARY",)}
    partition_rows = [s for s in statements if s.steps[0].table == "ems_partition"][1:]
    lock = ("ems_partition.PRIMARY", "ems_topic.PRIMARY")  # does the topic index keys?
    assert {tuple(s.indexes) for s in partition_rows} == {lock, ("ems_partition.PRIMARY",)}
    seeded.partition.refresh_from_db()
    assert seeded.partition.next_offset == LOG + INBOX + DUE
