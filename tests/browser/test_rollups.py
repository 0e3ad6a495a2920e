"""What Spark has rolled up stands on the pages as plain SQL counts it from the messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from monitoring.charts import text
from streams.models import ConsumerGroup, DeadMessage, Delivery, Message
from streams.testing import drain
from tests.browser.chromium import Tab
from tests.browser.shop import figure, number, open_shop, page, row
from tests.browser.test_operating import order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
    pytest.mark.spark,
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),
]

# A closed minute, and recent enough for the pages.
AGO = timedelta(minutes=5)


def counted(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def test_roll_ups_are_on_the_pages_as_sql_counts_them(tab: Tab, spawn: Any) -> None:
    open_shop()
    order(90)
    order(30, "stolen")
    drain()
    Message.objects.update(created_at=F("created_at") - AGO, sequenced_at=F("sequenced_at") - AGO)
    instants = ("claimed_at", "started_at", "finished_at")
    Delivery.objects.update(**{name: F(name) - AGO for name in instants})
    DeadMessage.objects.update(died_at=F("died_at") - AGO)
    rollup = spawn.command("ems_spark", "rollup")
    rollup.expect("backlog: ", 400)  # the last one; then the JVM ends
    rollup.succeed(100)

    billing = ConsumerGroup.objects.get(name="billing")
    tab.go(page("changelist") + "?refresh=off")
    assert row(tab, "orders")["Bytes"] == text.size(counted("SELECT SUM(size) FROM ems_msg"))
    assert row(tab, "mail")["p50 / p95 / p99"] != "–"
    tab.go(page("group", billing.pk) + "?refresh=off")
    # By Spark a class has no module, and a delivery that failed counts for its last error.
    failed = counted("SELECT SUM(failed) FROM ems_topic_group_log")
    assert number(row(tab, "CardRefused")["Count"]) == failed > 0
    assert "by Spark" in tab.text("#ems-chart-errors figcaption")
    assert "ems-drawn" in tab.ask("() => document.getElementById('ems-chart-latency').className")
    mine = f"FROM ems_topic_group_log WHERE group_id = {billing.pk}"
    tab.go(page("consumption", billing.pk) + "?refresh=off")
    consumed = counted(f"SELECT SUM(progress - first_offset - failed) {mine}")
    assert number(figure(tab, "Messages")) == consumed > 0
    assert number(figure(tab, "Failures")) == counted(f"SELECT SUM(failed) {mine}")
    assert "ems-drawn" in tab.ask("() => document.getElementById('ems-chart-handled').className")
    tab.click("#clients summary")
    by_thread = counted(f"SELECT MIN(thread) {mine}")
    assert number(row(tab, by_thread)["Messages"]) == consumed
    tab.go(page("topics") + "?refresh=off")
    orders = row(tab, "orders")
    assert number(orders["Messages"]) == counted("SELECT COUNT(*) FROM ems_msg") == 120
    assert (number(orders["Place"]), number(orders["Failures"])) == (1, failed)
    tab.go(page("pipeline") + "?refresh=off")
    for job in ("traffic", "consumption"):
        done = f"SELECT COUNT(*) FROM ems_monitoring_run WHERE job = '{job}' AND state = 'done'"
        assert number(row(tab, job)["Windows done"]) == counted(done) > 0
