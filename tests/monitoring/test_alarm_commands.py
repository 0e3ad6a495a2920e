"""What ems_alarms shows and does."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from monitoring.alarms.rules import find_rule
from monitoring.models import Alarm, AlarmChannel, AlarmRule
from streams.models import UtcNow
from tests.monitoring.alarming import alarm, channel, pass_time, receiver

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = StringIO()
    call_command("ems_alarms", *words, stdout=out)
    return out.getvalue()


def as_json(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


def test_list_shows_what_fires_and_on_request_what_has() -> None:
    alarm(subject="b", severity="warning")
    alarm(subject="a", detail="why")
    alarm(subject="c", slot=None, state="resolved", resolved_at=UtcNow())
    alarm(subject="d", state="pending")
    assert [row["subject"] for row in as_json("list")] == ["a", "b"]
    assert [row["subject"] for row in as_json("list", "--resolved")] == ["a", "b", "c"]
    assert "critical" in run("list")


def test_ack_notes_who_and_why_once() -> None:
    row = alarm()
    told = run("ack", str(row.pk), "--note", "on it")
    assert "acknowledged: mail on orders: Messages that a group is behind" in told
    assert "already" in run("ack", str(row.pk))
    row.refresh_from_db()
    assert row.note == "on it"
    assert "ems_alarms" in row.acknowledged_by
    Alarm.objects.update(slot=None, state="resolved")
    with pytest.raises(CommandError, match="fires"):
        run("ack", str(row.pk))


def test_mute_makes_a_rule_quiet_for_a_while() -> None:
    run("mute", "lag_age", "--for", "2h")
    until = find_rule("lag_age", "default").muted_until
    assert until
    assert next(r["muted_until"] for r in as_json("rules") if r["rule"] == "lag_age")
    run("mute", "lag_age", "--off")
    assert find_rule("lag_age", "default").muted_until is None
    with pytest.raises(CommandError, match="no alarm rule 'lag_old'"):
        run("mute", "lag_old", "--for", "2h")
    pass_time(1)


def test_set_changes_a_default_rule_and_unset_gives_it_back() -> None:
    before = find_rule("lag_age", "default")
    run("set", "lag_age", "--threshold", "60", "--for", "1m", "--severity", "info")
    after = find_rule("lag_age", "default")
    assert (after.threshold, after.for_time.total_seconds(), after.severity) == (60, 60, "info")
    assert after.operator == before.operator
    run("unset", "lag_age")
    assert find_rule("lag_age", "default") == before
    run("unset", "lag_age")
    with pytest.raises(CommandError, match="no alarm rule"):
        run("unset", "nothing")


def test_what_an_operator_has_not_set_follows_the_code() -> None:
    """After an upgrade with other defaults."""
    run("set", "lag_age", "--severity", "info")
    row = AlarmRule.objects.get()
    assert (row.threshold, row.for_seconds, row.enabled) == (None, None, None)


def test_a_rule_of_the_projects_own_has_a_scope_and_channels() -> None:
    channel("http://127.0.0.1:1/")
    words = ("--metric", "lag", "--topic", "orders", "--group", "mail", "--threshold", "5")
    run("set", "mail", *words, "--channel", "ops", "--remind", "4", "--operator", ">")
    mine = find_rule("mail", "default")
    assert mine.enabled
    assert (mine.topic, mine.group, mine.channels) == (
        "orders",
        "mail",
        frozenset({AlarmChannel.objects.get().pk}),
    )
    run("set", "mail", "--topic", "any", "--channel", "any", "--off")
    mine = find_rule("mail", "default")
    assert (mine.enabled, mine.topic, mine.channels) == (False, "", None)
    with pytest.raises(CommandError, match="metric"):
        run("set", "new")
    with pytest.raises(CommandError, match="metric"):
        run("set", "lag", "--metric", "disk")
    with pytest.raises(CommandError, match="no channel 'x'"):
        run("set", "mail", "--channel", "x")


def test_a_channel_is_made_with_secrets_of_the_environment_and_never_shows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOK", "https://chat.example/SECRET1")
    monkeypatch.setenv("KEY", "SECRET2")
    run("channel", "ops", "--kind", "webhook", "--url", "env:HOOK", "--secret", "env:KEY")
    row = AlarmChannel.objects.get()
    assert (row.url, row.secret) == ("https://chat.example/SECRET1", "SECRET2")
    shown = run("channels") + run("channels", "--json")
    assert "https://chat.example/…" in shown
    assert "SECRET" not in shown
    run("channel", "ops", "--off")
    assert not AlarmChannel.objects.get().enabled
    run("channel", "mail", "--kind", "email", "--to", "a@example.com")
    run("remove", "ops")
    assert [row.name for row in AlarmChannel.objects.all()] == ["mail"]


def test_the_last_channel_of_a_rule_is_not_removed() -> None:
    channel("http://127.0.0.1:1/")
    run("set", "lag", "--channel", "ops")
    with pytest.raises(CommandError, match="lag"):
        run("remove", "ops")
    run("set", "lag", "--channel", "any")
    run("remove", "ops")
    assert not AlarmChannel.objects.exists()


@pytest.mark.parametrize(
    ("metric", "scope"),
    [("disk", "--topic"), ("step_late", "--group"), ("not_sequenced", "--group")],
)
def test_a_scope_in_which_a_metric_measures_nothing_is_refused(metric: str, scope: str) -> None:
    with pytest.raises(CommandError, match="not measured"):
        run("set", "mine", "--metric", metric, scope, "mail")
    run("set", "mine", "--metric", "lag", scope, "mail")
    assert AlarmRule.objects.get().metric == "lag"


@pytest.mark.parametrize(
    "words",
    [
        ("--kind", "webhook"),
        ("--kind", "webhook", "--url", "ftp://example.com/"),
        ("--kind", "webhook", "--url", "http://user:pw@example.com/"),
        ("--kind", "webhook", "--url", "http://example.com:99999/"),
        ("--kind", "webhook", "--url", "http://"),
        ("--kind", "webhook", "--url", "https://a b/"),
        ("--kind", "email"),
        ("--kind", "email", "--to", "nobody"),
        ("--url", "https://example.com/"),
        ("--kind", "webhook", "--url", "env:NOT_THERE"),
    ],
)
def test_a_bad_channel_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run("channel", "ops", *words)
    assert not AlarmChannel.objects.exists()


def test_a_test_says_how_it_went() -> None:
    with receiver() as server:
        channel(server.url)
        assert "sent: ops" in run("test", "ops")
    with pytest.raises(CommandError, match="refused"):
        run("test", "ops")
    with pytest.raises(CommandError, match="no channel"):
        run("test", "nothing")


@pytest.mark.django_db(databases=["default", "other"])
def test_rules_and_channels_of_a_shard_are_those_of_the_main_database(ems_settings: Any) -> None:
    ems_settings(SHARDS={"clicks": "other"})
    run("channel", "ops", "--kind", "email", "--to", "a@b.example", "--database", "other")
    assert AlarmChannel.objects.using("default").filter(name="ops").exists()
    assert not AlarmChannel.objects.using("other").exists()
