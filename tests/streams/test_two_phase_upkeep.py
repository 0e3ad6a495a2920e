"""What doctor, audit, metrics, alarms and the deletion of a topic say of prepared messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from monitoring.alarms.evaluation import evaluate
from monitoring.alarms.metrics import measure
from monitoring.models import Alarm, AlarmNotification
from streams import Decision, send
from streams import prepared as prepared_before
from streams.database.sql import prepared as sql
from streams.errors import TopicInUse
from streams.metrics.reading import MetricReading
from streams.models import Access, CheckEndpoint, Message, PreparedRow, PreparedState, Topic, UtcNow
from streams.observe.audit.finding import AuditPosition
from streams.observe.audit.walk import audit, walk
from streams.observe.doctor import examine
from streams.observe.prepared import prepared
from streams.operate.topic_deletion import TopicDeletion
from streams.testing import checkback as check
from tests.monitoring.alarming import channel
from tests.preparing import CHECKER, answering, endpoint, held, pass_time, row, sent_keys

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


@pytest.fixture(autouse=True)
def known(clean_registry: None) -> list[Any]:
    return answering(Decision.UNKNOWN)


def said() -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in prepared("default")]


def turned(key: str, state: str, **more: Any) -> None:
    PreparedRow.objects.filter(biz_key=key).update(state=state, next_at=None, **more)


def test_the_doctor_says_nothing_where_nothing_was_ever_prepared() -> None:
    assert said() == []
    assert not [one for one in examine("default") if one.name == "prepared"]


@pytest.mark.every_database
def test_the_doctor_names_a_checker_that_nobody_asks() -> None:
    held()
    ((level, text),) = said()
    assert (level, text) == ("ok", "Nothing waits for a person, and no check is overdue.")
    pass_time(5.9)
    assert said()[0][0] == "ok"
    pass_time(0.2)
    ((level, text),) = said()
    assert (level, "“shop.order”" in text) == ("error", True)


def test_the_doctor_names_what_waits_for_a_person() -> None:
    for number in range(4):
        held(f"A{number}")
    turned("A0", PreparedState.MANUAL)
    turned("A1", PreparedState.UNSENT)
    turned("A2", PreparedState.ROLLED_BACK, disputed_at=UtcNow())
    PreparedRow.objects.filter(biz_key="A3").update(
        created_at=UtcNow(timedelta(hours=-2)), checker="e"
    )
    endpoint("http://127.0.0.1:1/", name="e")
    CheckEndpoint.objects.update(paused_until=UtcNow(timedelta(minutes=1)), last_error="away")
    levels, texts = zip(*said(), strict=True)
    assert set(levels) == {"warning"}
    for part in ("by a person", "cannot be sent", "rolled back by a check", "away", "an hour"):
        assert sum(part in text for text in texts) == 1, part


def test_the_audit_finds_what_nobody_will_ever_ask_about() -> None:
    for number in range(4):
        held(f"A{number}")
    assert audit("default") == []
    turned("A0", PreparedState.PREPARED)
    turned("A1", "NONE")
    turned("A2", PreparedState.SENT)
    found = {(one.kind, one.where) for one in audit("default")}
    assert found == {("undecided", "shop:A0"), ("undecided", "shop:A1"), ("unsent", "shop:A2")}
    start = AuditPosition.parse(f"prepared:{row('A2').pk}:0:0")
    ((finding,),) = [window.findings for window in walk("default", start)]
    assert finding.where == "shop:A2"


def test_the_audit_finds_messages_without_a_time() -> None:
    first = send("orders", 1).message_id
    send("orders", 2)
    Message.objects.filter(pk=first).update(due_at=None)
    assert [(one.kind, one.where) for one in audit("default")] == [("no time", "orders/0")]


def test_the_metrics_count_by_state() -> None:
    held("A0")
    held("A1")
    held("A2").commit()
    turned("A1", PreparedState.MANUAL)
    PreparedRow.objects.filter(biz_key="A1").update(created_at=UtcNow(timedelta(seconds=-100)))
    found = {(name, labels): value for name, labels, value in MetricReading("default").samples()}
    counts = {state: found["ems_prepared_messages", (state,)] for state in ("PREPARED", "MANUAL")}
    assert counts == {"PREPARED": 1, "MANUAL": 1}
    assert found["ems_prepared_messages", ("UNSENT",)] == 0
    assert 99 <= found["ems_prepared_oldest_seconds", ("MANUAL",)] < 200
    assert found["ems_prepared_oldest_seconds", ("UNSENT",)] == 0


def test_the_counts_end_so_that_a_scrape_costs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "COUNT_AT_MOST", 2)
    for number in range(4):
        held(f"A{number}")
    turned("A3", PreparedState.MANUAL)
    found = {(name, labels): value for name, labels, value in MetricReading("default").samples()}
    assert found["ems_prepared_messages", ("PREPARED",)] == 2
    assert found["ems_prepared_messages", ("MANUAL",)] == 1


def test_checks_are_counted_and_measured() -> None:
    from streams.metrics import process

    def count() -> float:
        labels = {"checker": CHECKER, "answer": "unknown"}
        return process.REGISTRY.get_sample_value("ems_checks_total", labels) or 0.0

    before = count()
    held()
    pass_time(1)
    process.start()
    try:
        check()
    finally:
        process.stop()
    assert count() == before + 1


def test_an_alarm_fires_for_each_business_that_waits_for_a_person() -> None:
    assert measure("prepared", "default") == {}
    for number, state in enumerate(("MANUAL", "UNSENT", "ROLLED_BACK", "ROLLED_BACK", "SENT")):
        held(f"A{number}")
        turned(f"A{number}", state)
    PreparedRow.objects.filter(biz_key="A2").update(disputed_at=UtcNow())
    held("B1", biz="bank")
    turned("B1", "MANUAL")
    values = measure("prepared", "default")
    assert values is not None
    assert {str(subject): value.number for subject, value in values.items()} == {
        "shop": 3.0,
        "bank": 1.0,
    }


def test_the_alarm_fires_until_the_person_has_decided() -> None:
    held()
    turned("A7", PreparedState.MANUAL)
    channel("http://127.0.0.1:1/")
    evaluate("default")
    (fired,) = Alarm.objects.filter(rule="prepared")
    assert (fired.state, fired.severity, fired.subject) == ("firing", "critical", "shop")
    assert AlarmNotification.objects.filter(alarm=fired).exists()
    prepared_before("shop", "A7").rollback()
    for _round in range(2):
        evaluate("default")
    fired.refresh_from_db()
    assert fired.state == "resolved"


def test_a_topic_with_prepared_messages_is_deleted_only_by_force() -> None:
    held("A0")
    held("A1").commit()
    Message.objects.all().delete()
    topic = Topic.objects.get()
    Topic.objects.update(access=Access.READ_ONLY)
    deletion = TopicDeletion(topic, "default")
    assert deletion.obstacles() == ["1 prepared message may still be sent to it."]
    with pytest.raises(TopicInUse):
        deletion.finish()
    forced = TopicDeletion(topic, "default", force=True)
    forced.close()
    forced.finish()
    assert not Topic.objects.exists()
    assert row("A0").state == PreparedState.ROLLED_BACK
    assert row("A0").decided_by == "operator:deletion of orders"
    assert sent_keys() == []
