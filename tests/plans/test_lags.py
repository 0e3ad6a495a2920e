"""The plans of the lag, and of what blocks a group: one look into an index for each cursor."""

from __future__ import annotations

import pytest

from streams.consume.blocked import blockades
from streams.log.lag import lags
from streams.models import ConsumerGroup, Cursor, Partition, UtcNow
from tests.plans.seed import Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_the_oldest_retry_is_found_without_a_sort(seeded: Seed) -> None:
    groups = list(ConsumerGroup.objects.select_related("topic"))
    with explained() as statements:
        lags(groups, "default", {})
    (cursors,) = [one for one in statements if "`ems_cursor`" in one.sql]
    assert "ems_retry_msg.ems_retry_place" in cursors.indexes, cursors
    assert not [text for text in cursors.problems() if "filesort" in text], cursors


def test_what_blocks_groups_is_read_by_four_statements_and_the_index_of_the_log(
    seeded: Seed,
) -> None:
    ConsumerGroup.objects.update(ordered=True)
    Partition.objects.filter(next_offset=0).update(next_offset=1)
    Cursor.objects.update(next_offset=0, attempt=3, blocked_at=UtcNow())
    groups = list(ConsumerGroup.objects.select_related("topic"))
    with explained() as statements:
        found = blockades(groups, "default")
    assert len(found) == len(groups)
    of_log = statements.only("`ems_msg`")
    assert of_log.indexes == ["ems_msg.ems_msg_log"]
    assert {step.access for step in of_log.steps} == {"range"}
    assert not of_log.problems(), of_log
    assert len(statements) <= 4, statements
