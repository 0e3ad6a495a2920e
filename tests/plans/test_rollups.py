"""The plans of what the roll-ups ask each minute, beside what Spark reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from sparkjobs.rollup import claims, letters, remembered, waiting
from tests.plans.seed import Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def fetch(opened: Any, statement: str, values: Iterable[Any] = ()) -> list[Any]:
    """Instead of the jobs' own connection, the one whose statements are explained."""
    with connection.cursor() as cursor:
        cursor.execute(statement, tuple(values))
        return list(cursor.fetchall())


def test_the_window_of_the_consumption_is_found_by_index(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (claims, letters, remembered, waiting):
        monkeypatch.setattr(module, "fetch", fetch)
    monkeypatch.setattr(letters, "stream", lambda *asked: [fetch(*asked)])
    for module in (letters, remembered, waiting):
        monkeypatch.setattr(module, "vendor_of", lambda opened: "mysql")
    now = datetime.now(UTC)
    opened: Any = None
    with explained() as statements:
        claims.ids_between(opened, now, now)
        claims.claimed_since(opened, now)
        claims.messages_between(opened, now, now)
        claims.ended_between(opened, (1, 2), now, now, 10)
        letters.counted_letters(opened, now + timedelta(minutes=1), now + timedelta(minutes=2))
        remembered.look(opened, now)
        remembered.long_ones(opened, (1, 2))
        letters.minutes_of_letters(opened, now + timedelta(minutes=1), now)
        letters.minutes_of_letters(opened, now - timedelta(days=1), now)
        waiting.waiting(opened, (1, 2), now, now)
        waiting._again(opened, (1, 1), 10, 20)
    for statement in statements:
        if "ORDER BY `group_id`" in str(statement):  # nearly all letters are asked for
            continue
        assert not [p for p in statement.problems() if p.startswith("reads all")], statement
    *_others, of_retries, of_claims = statements
    assert of_retries.indexes == ["ems_retry_msg.ems_retry_place"], of_retries
    assert of_claims.indexes == ["ems_topic_group_log.ems_log_place"], of_claims
    assert of_claims.steps[0].access == "range"
    of_letters = [one for one in statements if "`first_offset` > " in str(one)]
    assert of_letters
    for statement in of_letters:
        assert statement.indexes == ["ems_topic_group_log.ems_log_place"], statement
        assert statement.steps[0].access == "range"
