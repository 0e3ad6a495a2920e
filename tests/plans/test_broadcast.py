"""The plans of a broadcast client: it reads stretches of the log, and looks single messages up."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.log.offsets import offset_at
from streams.log.sequencer import Pass
from streams.models import Message, Partition, Start
from streams.process.broadcast import reader as readers
from streams.process.broadcast.position import Position, Positions
from streams.process.broadcast.reader import BroadcastReader
from tests.plans.seed import LOG, Seed
from tests.plans.statements import Statements, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def at(offset: int, *proof: object) -> Positions:
    return Positions({0: Position(offset, *proof)})  # type: ignore[arg-type]


def reader(seeded: Seed, positions: Positions) -> BroadcastReader:
    group = seeded.group
    group.start = Start.LATEST
    return BroadcastReader(group, "topic-1", positions, "default")


def assert_sound(statements: Statements) -> None:
    statements.assert_sound()
    for statement in statements:
        for step in statement.steps:
            # By partition and offset: never all of a partition.
            assert step.table != "ems_msg" or step.key_length > 9, statement


def test_a_client_that_begins_reads_one_message(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "sequence", lambda *of: Pass())  # test_sequencer.py has its plans
    with explained() as statements:
        reader(seeded, Positions()).begin()
    assert_sound(statements)
    assert statements.only("ems_partition").indexes == ["ems_partition.ems_partition_number"]
    assert statements.only("ems_msg").steps[0].access in ("const", "ref")


def test_a_position_is_compared_with_one_message(seeded: Seed) -> None:
    message = Message.objects.get(partition=seeded.partition, offset=LOG // 2 - 1)
    client = reader(seeded, at(LOG // 2, message.pk, message.sequenced_at))
    with explained() as statements:
        client.begin()
        assert client.take(100)
    assert_sound(statements)


def test_a_restore_and_a_hole_are_looked_into_by_offset(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ABSENT_SECONDS", 0.0)
    client = reader(seeded, at(LOG * 2, 1, datetime(2000, 1, 1, tzinfo=UTC)))
    with explained() as statements:
        client.begin()
        row = Partition.objects.get(pk=seeded.partition.pk)
        for _ in range(2):
            client.note_absent(row)
        offset_at(row, datetime(2100, 1, 1, tzinfo=UTC))
    assert_sound(statements)
