"""The plans of the audit: each window reads its own rows, by index, and sorts nothing."""

from __future__ import annotations

import pytest

from streams.observe.audit import walk
from tests.plans.seed import Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_no_window_reads_more_than_its_rows(seeded: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WINDOW", 100)
    with explained() as statements:
        windows = list(walk.walk("default"))
    assert len(windows) > 40
    statements.assert_sound()
    # Whose messages there are, found by jumping through the index.
    partitions = statements.only("SELECT DISTINCT `ems_msg`.`partition_id`")
    assert "Using index for group-by" in partitions.steps[0].extra, partitions
    # What a log holds, and in which order: no row is read, but those beside a late commit.
    rows = statements.only("SELECT `ems_msg`.`offset`", "`ems_msg`.`due_at`")
    assert rows.indexes == ["ems_msg.ems_msg_inbox"]
    assert "Using index" in rows.steps[0].extra, rows
