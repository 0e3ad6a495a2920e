"""The plans of the lag: one look into the index for each cursor, however many retries there are."""

from __future__ import annotations

import pytest

from streams.log.lag import lags
from streams.models import ConsumerGroup
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
