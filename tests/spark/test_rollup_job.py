"""All roll-ups in a row: what one of them meets is not a matter of the others."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from monitoring.models import Run

pytestmark = [pytest.mark.django_db(transaction=True)]


def test_an_error_of_one_job_does_not_keep_the_others_from_running(
    config: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs import session
    from sparkjobs.jobs import backlog, consumption, traffic
    from sparkjobs.jobs.rollup import roll_up_all

    ran = []

    def breaks(spark: Any, config: Any, connection: Any, say: Any, messages: Any) -> None:
        ran.append(connection)
        raise sqlite3.OperationalError("database is locked")

    def works(spark: Any, config: Any, connection: Any, say: Any, messages: Any) -> None:
        ran.append(connection)

    monkeypatch.setattr(session, "describe", lambda spark, text: None)
    monkeypatch.setattr(traffic, "roll_up_traffic", works)
    monkeypatch.setattr(consumption, "roll_up_consumption", breaks)
    monkeypatch.setattr(backlog, "roll_up_backlog", works)
    assert [type(error) for error in roll_up_all(None, config, print)] == [sqlite3.OperationalError]
    assert len({id(connection) for connection in ran}) == 3  # what one has broken, no other has
    assert "breaks: OperationalError: database is locked" in capsys.readouterr().err
    assert not Run.objects.exists()


@pytest.mark.any_database
@pytest.mark.any_database
def test_the_error_of_a_jvm_that_has_died_is_told_and_the_later_ones_do_not_hide_it(
    config: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs import session
    from sparkjobs.jobs import backlog, consumption, traffic
    from sparkjobs.jobs.rollup import roll_up_all
    from sparkjobs.rollup.messages import Messages

    died: list[str] = []

    def dies(spark: Any, config: Any, connection: Any, say: Any, messages: Any) -> None:
        died.append("out of memory")
        raise OSError(died[0])

    def calls(*args: Any) -> None:
        if died:
            raise ConnectionRefusedError("no JVM")

    for module in (traffic, consumption, backlog):
        monkeypatch.setattr(module, f"roll_up_{module.JOB}", dies)
    monkeypatch.setattr(session, "describe", calls)
    monkeypatch.setattr(Messages, "forget", calls)
    kinds = [OSError, ConnectionRefusedError, ConnectionRefusedError]
    assert [type(error) for error in roll_up_all(None, config, print)] == kinds
    told = capsys.readouterr().err
    assert "dies: OSError: out of memory\nTraceback" in told
    assert "raise OSError(died[0])" in told


def test_figures_come_out_of_arrow_a_few_at_a_time_in_the_order_of_their_key() -> None:
    import pyarrow as pa

    from sparkjobs.rollup.arrow import ArrowRows

    rows = ArrowRows(pa.table({"group_id": [2, 1, 2, 1], "thread": ["b", "b", "a", "a"]}))
    parts = list(rows.parts(("group_id", "thread"), 3))
    assert [len(part) for part in parts] == [3, 1]
    assert [(row["group_id"], row["thread"]) for part in parts for row in part] == [
        *((1, "a"), (1, "b"), (2, "a"), (2, "b")),
    ]


@pytest.mark.exhaustive
@pytest.mark.any_database
def test_a_day_of_figures_is_never_in_memory_as_python_objects(
    config: Any, connection: Any
) -> None:
    import tracemalloc
    from datetime import UTC, datetime, timedelta

    import pyarrow as pa

    from sparkjobs.database import transaction
    from sparkjobs.rollup.arrow import ArrowRows
    from sparkjobs.rollup.tables import LATENCY, upsert

    count = 20_000
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    table = pa.table(
        {
            "group_id": [1] * count,
            "minute": [noon + timedelta(minutes=n) for n in range(count)],
            "leg": ["total"] * count,
            **{name: [1] * count for name in LATENCY.figures},
        }
    )
    tracemalloc.start()
    try:
        with transaction(connection):
            assert upsert(connection, LATENCY, ArrowRows(table)) == count
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000  # all of it would be some 15 MB
