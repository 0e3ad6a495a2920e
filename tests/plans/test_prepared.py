"""The plans of what reads prepared messages, of which most are sent."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import islice

import pytest
from django.db import connection
from django.db.models import F

from streams.database.sql import prepared as sql
from streams.database.sql.dialect import fetch
from streams.models import PreparedRow, PreparedState, UtcNow
from streams.models.namespaces import own_range
from streams.models.prepared import UNFINISHED
from streams.retain.old_rows import prepared_messages
from streams.two_phase.claim import claim, due_checkers
from streams.two_phase.decide import commit
from streams.two_phase.forward import forward_due
from streams.two_phase.listing import rows_after
from tests.plans.statements import explained

# ANALYZE commits.
pytestmark = [pytest.mark.mysql, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def many() -> None:
    """3,000 rows: 100 undecided ones of two checkers, half of them due, and the rest sent."""
    PreparedRow.objects.bulk_create(
        PreparedRow(
            biz=f"shop-{number % 7}",
            biz_key=str(number),
            state=PreparedState.PREPARED if number % 30 == 0 else PreparedState.SENT,
            topic="orders",
            body=b"",
            body_type="text",
            size=1,
            digest=b"0" * 32,
            producer="p",
            checker=f"checker-{number % 4 // 2}",
            next_at=UtcNow(timedelta(minutes=number % 2 - 0.5)) if number % 30 == 0 else None,
            decided_at=None if number % 30 == 0 else UtcNow(),
        )
        for number in range(3000)
    )
    PreparedRow.objects.filter(state=PreparedState.SENT).update(next_at=None)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE ems_prepared")
        cursor.fetchall()


def test_a_claim_reads_the_due_messages_of_its_checker_alone(many: None) -> None:
    assert due_checkers("default") == ["checker-0", "checker-1"]
    with explained() as statements:
        claim("checker-0", 20, "default")
    statements.assert_sound()
    (found, *_rest) = statements.on("ems_prepared")
    assert found.indexes == ["ems_prepared.ems_prepared_due"]
    assert found.steps[0].access == "range"


@pytest.mark.parametrize("state", ["PREPARED", "COMMITTED"])
def test_who_is_due_is_one_entry_of_the_index_for_each_checker(many: None, state: str) -> None:
    PreparedRow.objects.filter(state="PREPARED").update(state=state)
    with explained() as statements:
        assert due_checkers("default", PreparedState(state)) == ["checker-0", "checker-1"]
    (found,) = statements
    assert found.indexes == ["ems_prepared.ems_prepared_due"]
    assert "for group-by" in found.steps[0].extra


def test_what_is_forwarded_is_read_in_the_order_of_the_index(many: None) -> None:
    waiting = PreparedRow.objects.filter(state=PreparedState.PREPARED)
    waiting.update(state=PreparedState.COMMITTED, next_at=UtcNow(timedelta(minutes=-1)))
    with explained() as statements:
        forward_due("default", time.monotonic() + 60)
    statements.assert_sound()
    (found,) = {
        s.sql: s for s in statements if "ORDER BY" in s.sql and "LIMIT 100" in s.sql
    }.values()
    assert found.indexes == ["ems_prepared.ems_prepared_due"]


def test_a_commit_finds_its_row_by_the_key_and_locks_it_by_its_id(many: None) -> None:
    with explained() as statements:
        commit("shop-0", "0", by="caller:x", using="default")
    reads = statements.on("ems_prepared")
    assert reads[0].indexes == ["ems_prepared.ems_prepared_key"]
    assert {one.indexes[0] for one in reads[1:]} == {"ems_prepared.PRIMARY"}


def test_the_purge_reads_what_is_old_alone(many: None) -> None:
    PreparedRow.objects.filter(biz="shop-1").update(decided_at=F("decided_at") - timedelta(days=9))
    with explained() as statements:
        next(islice(prepared_messages("default"), 1, None), None)
    assert statements.on("ems_prepared")[0].indexes == ["ems_prepared.ems_prepared_decided"]


def test_what_is_disputed_is_found_among_many_that_were_rolled_back(many: None) -> None:
    sent = PreparedRow.objects.filter(state=PreparedState.SENT)
    sent.update(state=PreparedState.ROLLED_BACK)
    PreparedRow.objects.filter(biz="shop-1", biz_key__startswith="11").update(disputed_at=UtcNow())
    with explained() as statements:
        assert PreparedRow.objects.disputed().count() > 5
    assert statements[0].indexes == ["ems_prepared.ems_prepared_disputed"]


def test_the_counts_read_what_is_not_done(many: None) -> None:
    statement = sql.counts(connection.vendor, UNFINISHED)
    with explained() as statements:
        rows = fetch("default", statement, [*own_range()] * len(UNFINISHED))
    assert {state: count for state, count, _age in rows if count} == {"PREPARED": 100}
    keys = {step.key for step in statements[0].steps if step.table == "ems_prepared"}
    assert keys == {"ems_prepared_due"}


def test_a_list_of_what_is_undecided_reads_no_row_that_was_sent(many: None) -> None:
    with explained() as statements:
        assert len(rows_after(None, 40, "default", states=["PREPARED", "MANUAL"])) == 40
    assert statements[0].indexes == ["ems_prepared.ems_prepared_due"]
    assert statements[0].steps[0].access == "range"


def test_a_list_of_one_business_is_in_the_order_of_its_keys(many: None) -> None:
    with explained() as statements:
        found = rows_after("1", 40, "default", biz="shop-1")
    assert [row.biz_key for row in found] == sorted(row.biz_key for row in found)
    assert statements[0].indexes == ["ems_prepared.ems_prepared_key"]
    statements.assert_sound()
