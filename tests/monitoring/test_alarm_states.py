"""How alarms move: pending, firing, acknowledged, resolved; one row for each firing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connection

from monitoring import signals
from monitoring.alarms import evaluation, firing, metrics
from monitoring.alarms.evaluation import evaluate, evaluate_if_due
from monitoring.alarms.rules import UnknownRule, mute
from monitoring.models import Alarm, AlarmNotification, AlarmRule
from streams.chaos.forks import in_fork
from streams.models import UtcNow
from tests.concurrency.locks import held_before, wait_until_one_waits
from tests.faults import Guillotine
from tests.monitoring.alarming import Dial, alarm, channel, events, pass_time, states
from tests.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def dial(monkeypatch: pytest.MonkeyPatch) -> Dial:
    return Dial(monkeypatch)


@pytest.fixture
def told() -> Iterator[list[tuple[str, str]]]:
    found: list[tuple[str, str]] = []

    def fired(alarm: Alarm, **rest: Any) -> None:
        found.append(("fired", alarm.subject))

    def resolved(alarm: Alarm, **rest: Any) -> None:
        found.append(("resolved", alarm.subject))

    signals.alarm_fired.connect(fired, weak=False)
    signals.alarm_resolved.connect(resolved, weak=False)
    yield found
    signals.alarm_fired.disconnect(fired)
    signals.alarm_resolved.disconnect(resolved)


def test_an_alarm_fires_once_and_resolves(dial: Dial, told: list[tuple[str, str]]) -> None:
    channel("http://127.0.0.1:1/")
    dial.show(11)
    for _ in range(3):
        evaluate("default")
    assert states() == ["firing"]
    assert events() == ["fired"]
    dial.show(12)
    evaluate("default")
    assert Alarm.objects.get().value == 12
    dial.show(10)  # the threshold itself is not above it
    for _ in range(2):
        evaluate("default")
    assert states() == ["resolved"]
    assert events() == ["fired", "resolved"]
    assert told == [("fired", "mail on orders"), ("resolved", "mail on orders")]
    dial.show(11)
    evaluate("default")
    assert states() == ["resolved", "firing"]


def test_the_log_says_in_words_and_units_what_fires(
    dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    dial.show(14974.61766)
    evaluate("default")
    dial.show(0)
    evaluate("default")
    about = "mail on orders: Messages that a group is behind"
    said = [r.getMessage() for r in caplog.records if "Alarm" in r.getMessage()]
    assert said == [
        f"Alarm fires: {about}: 14,974 (rule lag)",
        f"Alarm is resolved: {about} (rule lag)",
    ]


def test_a_condition_that_does_not_last_tells_nobody(dial: Dial) -> None:
    channel("http://127.0.0.1:1/")
    AlarmRule.objects.create(name="lag", metric="lag", for_seconds=60)
    dial.show(11)
    evaluate("default")
    assert states() == ["pending"]
    assert firing("default") == []
    pass_time(50)
    dial.show(0)
    evaluate("default")
    assert states() == []
    dial.show(11)
    evaluate("default")
    pass_time(50)
    evaluate("default")
    assert states() == ["pending"]
    pass_time(11)
    evaluate("default")
    assert states() == ["firing"]
    assert events() == ["fired"]


@pytest.mark.parametrize("how", ["metric", "subject", "error"])
@pytest.mark.parametrize("state", ["pending", "firing", "acknowledged"])
def test_what_is_unknown_neither_fires_nor_resolves(
    dial: Dial, how: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm(state=state, fired_at=None, told_at=None)
    if how == "metric":
        dial.fail()
    elif how == "subject":
        dial.show(None)
    else:

        def broken(using: str) -> Any:
            raise OperationalError(1205, "Lock wait timeout exceeded")

        broken_lag = metrics.Measure(broken, metrics.COUNT, 10)
        monkeypatch.setitem(metrics.METRICS, "lag", broken_lag)
    evaluate("default")
    assert states() == [state]
    assert events() == []


def test_a_group_that_is_gone_and_a_rule_that_is_off_resolve(dial: Dial) -> None:
    dial.show(11)
    evaluate("default")
    dial.values = {}
    evaluate("default")
    assert states() == ["resolved"]
    dial.show(11)
    evaluate("default")
    AlarmRule.objects.create(name="lag", metric="lag", enabled=False)
    evaluate("default")
    assert states() == ["resolved", "resolved"]


def test_an_acknowledged_alarm_stays_so_and_resolves(dial: Dial) -> None:
    channel("http://127.0.0.1:1/")
    AlarmRule.objects.create(name="lag", metric="lag", remind_hours=1)
    dial.show(11)
    evaluate("default")
    (found,) = firing("default")
    assert found.acknowledge("ann", "on it")
    assert not found.acknowledge("bob", "me too")
    pass_time(7200)
    evaluate("default")
    row = Alarm.objects.get()
    assert (row.state, row.acknowledged_by, row.note) == ("acknowledged", "ann", "on it")
    assert events() == ["fired"]  # no reminder: somebody takes care of it
    dial.show(0)
    evaluate("default")
    assert events() == ["fired", "resolved"]
    assert not found.acknowledge("bob", "too late")


def test_a_reminder_comes_after_hours_if_asked_for(dial: Dial) -> None:
    channel("http://127.0.0.1:1/")
    dial.show(11)
    evaluate("default")
    pass_time(7200)
    evaluate("default")
    assert events() == ["fired"]
    AlarmRule.objects.create(name="lag", metric="lag", remind_hours=3)
    evaluate("default")
    assert events() == ["fired"]
    pass_time(3700)
    for _ in range(2):
        evaluate("default")
    assert events() == ["fired", "reminder"]


def test_a_muted_rule_tells_after_its_time_what_still_fires(dial: Dial) -> None:
    channel("http://127.0.0.1:1/")
    mute("lag", timedelta(hours=1), "default")
    dial.show(11, 12)
    evaluate("default")
    assert states() == ["firing", "firing"]
    assert events() == []
    dial.show(0, 12)
    evaluate("default")
    assert events() == []  # nobody was told that it fired
    pass_time(3601)
    evaluate("default")
    assert events() == ["fired"]
    assert AlarmNotification.objects.filter(alarm__group="g1").count() == 1
    with pytest.raises(UnknownRule):
        mute("leg", None, "default")


def test_only_the_channels_of_a_rule_are_told(dial: Dial) -> None:
    chosen = channel("http://127.0.0.1:1/")
    other = channel("http://127.0.0.1:2/", name="others")
    channel("http://127.0.0.1:3/", name="off", enabled=False)
    dial.show(11)
    evaluate("default")
    assert {row.channel_id for row in AlarmNotification.objects.all()} == {chosen.pk, other.pk}
    rule = AlarmRule.objects.create(name="mine", metric="lag", group="g1", threshold=0)
    rule.channels.add(chosen)
    AlarmNotification.objects.all().delete()
    dial.show(11, 5)
    evaluate("default")
    rows = AlarmNotification.objects.values_list("alarm__rule", "channel")
    assert list(rows) == [("mine", chosen.pk)]


# -- one row for each firing --


def test_two_evaluators_that_have_both_seen_the_condition_make_one_row(
    dial: Dial, second_connection: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has read that there is no alarm before the first one writes it."""
    channel("http://127.0.0.1:1/")
    dial.show(11)
    other = second_connection()
    insert = evaluation._insert

    def overtaken(alarms: list[Alarm], using: str) -> None:
        monkeypatch.setattr(evaluation, "_insert", insert)
        with other.active():
            evaluate("default")
        insert(alarms, using)

    monkeypatch.setattr(evaluation, "_insert", overtaken)
    evaluate("default")
    assert states() == ["firing"]
    assert events() == ["fired"]


def test_many_evaluators_at_once_make_one_row(
    dial: Dial, in_thread: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel("http://127.0.0.1:1/")
    for number in (11, 0, 12):
        dial.show(number, number)
        for running in [in_thread(evaluate, "default") for _ in range(5)]:
            running.result(60)
    assert sorted(states()) == ["firing", "firing", "resolved", "resolved"]
    assert sorted(events()) == ["fired"] * 4 + ["resolved"] * 2


@pytest.mark.mysql
def test_an_evaluator_waits_for_the_one_that_changes_the_same_alarms(
    dial: Dial, in_thread: Any
) -> None:
    """Otherwise both would see that the alarm is pending, and both would tell the channels."""
    channel("http://127.0.0.1:1/")
    dial.show(11)
    begin = "UPDATE `ems_monitoring_alarm`"
    with held_before(in_thread, begin, lambda: evaluate("default")):
        other = in_thread(evaluate, "default")
        wait_until_one_waits(str(connection.settings_dict["NAME"]))
    other.result(60)
    assert states() == ["firing"]
    assert events() == ["fired"]


def test_the_step_is_run_by_one_process(dial: Dial) -> None:
    dial.show(11)
    evaluate_if_due("default")
    Alarm.objects.all().delete()
    evaluate_if_due("default")
    assert states() == []
    pass_time(16)
    evaluate_if_due("default")
    assert states() == ["firing"]


def _evaluate_until_killed(point: int) -> None:
    Guillotine(point).install()
    evaluate("default")


@pytest.mark.parametrize("before", ["nothing", "firing", "muted"])
def test_an_evaluator_may_be_killed_between_any_two_statements(dial: Dial, before: str) -> None:
    channel("http://127.0.0.1:1/")
    for point in count(1):
        Alarm.objects.all().delete()
        AlarmNotification.objects.all().delete()
        if before == "firing":
            alarm()
            dial.show(0, 12)  # one resolves, one fires
        elif before == "muted":
            alarm(told_at=None)
            dial.show(11)
        else:
            dial.show(11, 12)
        status = in_fork(partial(_evaluate_until_killed, point))
        assert status in (0, -9)
        evaluate("default")
        expected = {
            "nothing": (["firing", "firing"], ["fired", "fired"]),
            "firing": (["firing", "resolved"], ["fired", "resolved"]),
            "muted": (["firing"], ["fired"]),
        }[before]
        assert (sorted(states()), sorted(events())) == expected, point
        if status == 0:
            break
    assert point > 8  # it did die at many places


def statements_of_an_evaluation() -> int:
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as found:
        evaluate("default")
    return len(found)


@pytest.mark.mysql
def test_the_statements_of_an_evaluation_do_not_grow_with_the_groups(dial: Dial) -> None:
    channel("http://127.0.0.1:1/")
    counts: list[list[int]] = []
    for groups in (1, 300):
        Alarm.objects.all().delete()
        counts.append([])
        for number in (11, 12, 12, 0):  # all fire, all have another value, the same one, all end
            dial.show(*[number] * groups)
            counts[-1].append(statements_of_an_evaluation())
    assert counts[0] == counts[1]
    assert states() == ["resolved"] * 300


def test_an_alarm_that_fires_follows_its_rule(dial: Dial) -> None:
    dial.show(11)
    evaluate("default")
    row = Alarm.objects.get()
    assert (row.severity, row.threshold) == ("warning", 10)
    row.acknowledge("ann", "")
    rule = {"severity": "critical", "threshold": 5, "runbook": "https://wiki.example.com/"}
    AlarmRule.objects.create(name="lag", metric="lag", **rule)
    evaluate("default")
    row.refresh_from_db()
    assert {name: getattr(row, name) for name in rule} == rule


def test_a_look_that_is_old_ends_no_alarm_that_began_after_it(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a process that stood still, or has waited for the database, between look and change."""
    channel("http://127.0.0.1:1/")
    real = evaluation._change

    def late(look: Any, using: str) -> Any:
        monkeypatch.setattr(evaluation, "_change", real)
        dial.show(12)
        evaluate(using)  # of another process, whose look is newer
        assert events() == ["fired", "resolved"]
        return real(look, using)

    alarm(subject="old on orders", group="old")  # for the first look to have something to change
    monkeypatch.setattr(evaluation, "_change", late)
    dial.show(0)
    evaluate("default")
    assert events() == ["fired", "resolved"]
    assert Alarm.objects.get(group="mail").state == "firing"


def test_after_a_clock_was_set_back_an_alarm_ends(dial: Dial) -> None:
    """It began at a time that has not come yet."""
    dial.show(12)
    evaluate("default")
    Alarm.objects.update(since=UtcNow(timedelta(hours=1)))
    dial.show(0)
    evaluate("default")
    assert Alarm.objects.get().state == "resolved"
