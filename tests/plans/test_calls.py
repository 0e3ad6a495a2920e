"""The plans of what is asked for slow calls and for the oldest dead letter: short ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.log.calls import slow_calls
from streams.log.counting import count_each
from streams.log.lag import DEAD_AGE, countable, lags
from streams.models import ConsumerGroup, Delivery
from tests.plans.seed import Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_what_is_usual_is_read_from_the_place_of_each_call(seeded: Seed) -> None:
    found = lags(ConsumerGroup.objects.select_related("topic"), "default", {})
    later = datetime.now(UTC) + timedelta(hours=1)
    with explained() as statements:
        assert slow_calls(found, later, "default")
    of_usual = statements.only("`part`")
    steps = [step for step in of_usual.steps if step.table == "ems_topic_group_log"]
    assert {(step.access, step.key) for step in steps} == {("range", "ems_log_place")}, of_usual
    assert not [text for text in of_usual.problems() if "filesort" in text], of_usual
    (held,) = [one for one in statements if one is not of_usual]
    assert held.indexes == ["ems_topic_group_log.ems_log_open"]


def test_the_oldest_dead_letter_is_the_first_of_its_index(seeded: Seed) -> None:
    rows = countable(ConsumerGroup.objects.all(), "default")
    oldest = {key: one for key, one in rows.items() if key[0] == DEAD_AGE}
    with explained() as statements:
        assert count_each(oldest, 1, "default")
    steps = [step for one in statements for step in one.steps if step.table == "ems_dead_msg"]
    assert {(step.access, step.key) for step in steps} == {("ref", "ems_dead_waiting")}
    assert not [one for one in statements if any("filesort" in text for text in one.problems())]
    assert Delivery.objects.exists()
