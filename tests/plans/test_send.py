"""A send is an INSERT; what it looks up is small, and by a unique name."""

from __future__ import annotations

import pytest

from streams import Outgoing, runtime_settings, send, send_many
from streams.log import topics
from tests.plans.seed import Seed
from tests.plans.statements import LARGE, explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_a_send_reads_the_topic_by_name_and_no_large_table(seeded: Seed) -> None:
    topics.forget()
    runtime_settings.forget()
    with explained() as statements:
        send("topic-7", {"n": 1}, key="k")
        send_many([Outgoing("topic-8", n) for n in range(3)])
    lookups = statements.on("ems_topic")
    assert lookups, statements
    for lookup in lookups:
        assert lookup.indexes == [
            "ems_topic.ems_topic_name",
            "ems_partition.ems_partition_number",
        ], lookup
    assert not {step.table for s in statements for step in s.steps} & LARGE
    statements.assert_sound()
