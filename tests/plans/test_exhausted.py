"""The plan of the look for retries that have no attempt left: it runs every second."""

from __future__ import annotations

import pytest

from streams.models import ConsumerGroup, RetryMessage
from streams.steps.retries import step_retries
from tests.plans.seed import Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_retries_that_are_due_are_read_group_by_group_in_the_order_of_their_index(
    seeded: Seed,
) -> None:
    """Those that wait for their time, and other groups', are not stepped over."""
    ids = [group.pk for group in seeded.groups]
    ConsumerGroup.objects.filter(pk__in=ids).update(max_retries=1000)  # so that it can judge
    with explained() as statements:
        assert step_retries("default") == 0
    statements.assert_sound()
    look, *reads = statements.on("ems_retry_msg")
    assert "Using index for group-by" in look.steps[0].extra, look
    assert len(reads) == RetryMessage.objects.due().values("group").distinct().count()
    for read in reads:
        (step,) = read.steps  # no join, which would read the retries of all groups
        assert (step.access, step.key) == ("range", "ems_retry_due"), read
