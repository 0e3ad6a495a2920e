"""The plans of deliveries whose messages are settled in any order: by their keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams.consume.outcome.any_order import Ends, settle_any_order, split
from streams.deliver.claim import Claimer
from streams.models import Delivery
from tests.plans.seed import LIVE, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]

MINUTE = timedelta(minutes=1)


@pytest.fixture
def claimed(seeded: Seed) -> list[Delivery]:
    claimer = Claimer(seeded.group, LIVE, "t", "default")
    found = [claimer.claim(10, MINUTE) for _ in range(8)]
    return [one for one in found if one is not None]


def test_many_are_settled_in_one_update_by_their_keys(claimed: list[Delivery]) -> None:
    some = [Ends(one, 0b101) for one in claimed[:4]]
    whole = [Ends(one, 0b1111111111) for one in claimed[4:]]
    for ends in ([*some, *whole], some[:1]):
        with explained() as statements:
            assert settle_any_order(ends, "default") == []
        statements.assert_sound()
        (update,) = statements
        assert update.indexes == ["ems_topic_group_log.PRIMARY"]
        assert {step.access for step in update.steps} == {"range"}
        for one in claimed:
            one.settled = None
            Delivery.objects.filter(pk=one.pk).update(settled=None)


def test_what_is_lost_is_read_by_its_keys(claimed: list[Delivery]) -> None:
    Delivery.objects.filter(pk=claimed[0].pk).update(token="another")
    with explained() as statements:
        assert settle_any_order([Ends(one, 1) for one in claimed], "default") == [claimed[0]]
    statements.assert_sound()
    (look,) = statements.on("ems_topic_group_log")
    assert look.indexes == ["ems_topic_group_log.PRIMARY"]


def test_a_delivery_is_split_by_its_key(claimed: list[Delivery]) -> None:
    settle_any_order([Ends(claimed[0], 0b101)], "default")
    with explained() as statements:
        assert len(split(claimed[0], {claimed[0].first_offset + 4})) == 4
    statements.assert_sound()
    used = {name for one in statements.on("ems_topic_group_log", "UPDATE") for name in one.indexes}
    assert used == {"ems_topic_group_log.PRIMARY"}
