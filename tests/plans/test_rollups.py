"""The plans of what the roll-ups ask each minute, beside what Spark reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from sparkjobs import instants
from sparkjobs.rollup import lag
from tests.plans.seed import Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def fetch(opened: Any, statement: str, values: Iterable[Any] = ()) -> list[Any]:
    """Instead of the jobs' own connection, the one whose statements are explained."""
    with connection.cursor() as cursor:
        cursor.execute(statement, tuple(values))
        return list(cursor.fetchall())


def test_the_lag_is_read_from_the_open_deliveries_and_single_messages(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "fetch", fetch)
    monkeypatch.setattr(instants, "fetch", fetch)
    with explained() as statements:
        found = lag.lags(None)
    assert {one.group_id for one in found} >= {group.pk for group in seeded.groups}
    assert "ems_topic_group_log.ems_log_open" in statements.only("AS `held`").indexes
    assert "ems_retry_msg.ems_retry_place" in statements.only("r.`offset`").indexes
    ages = statements.only("`sequenced_at` FROM `ems_msg`")
    assert ages.indexes == ["ems_msg.ems_msg_log"]
    assert ages.steps[0].access == "range"


@pytest.mark.spark
def test_the_window_of_the_consumption_is_found_by_index(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import consumption

    monkeypatch.setattr(consumption, "fetch", fetch)
    since = datetime.now(UTC) + timedelta(minutes=1)  # when few letters have died since
    opened: Any = None
    with explained() as statements:
        consumption._oldest_open(opened)
        consumption._first_delivery(opened, since)
        consumption._first_letter(opened, since)
        consumption._changed_since(opened, since)
    for statement in statements:
        assert not [p for p in statement.problems() if p.startswith("reads all")], statement
    oldest, first, letter, changed = statements
    assert oldest.indexes == first.indexes == ["ems_topic_group_log.ems_log_open"]
    assert first.steps[0].access == "range"
    assert letter.indexes == ["ems_dead_msg.ems_dead_died"]
    keys = {step.key for step in changed.steps}
    assert {"ems_dead_died", "ems_log_place", "PRIMARY"} <= keys, changed
