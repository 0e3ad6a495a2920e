"""Alarms of topics on several databases: the rules and channels of one hold for all of them."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from monitoring.alarms.evaluation import evaluate_if_due
from monitoring.alarms.home import copy_from_home
from monitoring.alarms.rules import find_rule, mute
from monitoring.alarms.texts import lines
from monitoring.models import Alarm, AlarmChannel, AlarmNotification, AlarmRule
from monitoring.pages import alarms
from streams.routers import StreamsRouter
from tests.faults import Astray
from tests.monitoring.alarming import Dial

pytestmark = pytest.mark.django_db(databases=["default", "other"], transaction=True)


@pytest.fixture
def sharded(ems_settings: Any) -> AlarmChannel:
    """A channel of ``default``, where its id is another than that of any copy of it."""
    ems_settings(SHARDS={"clicks": "other"})
    AlarmChannel.objects.create(name="gone", kind="email", recipients="a@example.com").delete()
    return AlarmChannel.objects.create(name="ops", kind="email", recipients="a@example.com")


@pytest.mark.parametrize("routers", [[], [StreamsRouter()], [Astray("default")]])
def test_an_alarm_of_a_shard_is_told_by_the_rules_and_channels_of_the_one_database(
    sharded: AlarmChannel, monkeypatch: pytest.MonkeyPatch, settings: Settings, routers: list[Any]
) -> None:
    settings.DATABASE_ROUTERS = routers
    more = AlarmChannel.objects.create(name="more", kind="email", recipients="c@example.com")
    AlarmRule.objects.create(name="age", metric="lag_age").channels.set([more])
    AlarmRule.objects.create(name="lag", metric="lag", threshold=5).channels.set([sharded])
    Dial(monkeypatch).show(7)
    evaluate_if_due("other")
    told = AlarmNotification.objects.using("other").values_list("channel__name", flat=True)
    assert list(told) == ["ops"]
    alarm = Alarm.objects.using("other").get()
    assert alarm.threshold == 5
    assert "Database: other" in lines(alarm, "")
    assert not Alarm.objects.using("default").exists()


@pytest.mark.parametrize("routers", [[], [StreamsRouter()]])
def test_a_command_changes_the_one_database_whatever_topic_or_database_it_names(
    sharded: AlarmChannel, settings: Settings, routers: list[Any]
) -> None:
    settings.DATABASE_ROUTERS = routers

    def run(*words: str) -> None:
        call_command("ems_alarms", *words, stdout=StringIO())

    copy_from_home("other")
    # The rule has another id than its copy.
    AlarmRule.objects.create(name="gone", metric="lag").delete()
    run("set", "slow", "--metric", "lag", "--topic", "clicks", "--channel", "ops")
    assert find_rule("slow", "default").channels == frozenset([sharded.pk])
    copy_from_home("other")
    copy = AlarmChannel.objects.using("other").get()
    assert find_rule("slow", "other").channels == frozenset([copy.pk])
    run("set", "slow", "--topic", "clicks", "--threshold", "9")
    assert find_rule("slow", "default").threshold == 9
    with pytest.raises(CommandError, match="no channel 'nobody'"):
        run("set", "quick", "--metric", "lag", "--channel", "nobody")
    assert not AlarmRule.objects.using("default").filter(name="quick").exists()
    run("set", "slow", "--topic", "clicks", "--channel", "any")
    assert find_rule("slow", "default").channels is None
    run("remove", "ops", "--database", "other")
    assert not AlarmChannel.objects.using("default").exists()
    assert AlarmChannel.objects.using("other").get() == copy  # until it follows


def test_the_copy_follows_and_keeps_how_its_own_notifications_went(sharded: AlarmChannel) -> None:
    rule = AlarmRule.objects.create(name="lag", metric="lag", threshold=5)
    rule.channels.set([sharded])
    copy_from_home("other")
    copies = AlarmChannel.objects.using("other")
    copies.update(last_sent_at=timezone.now())
    sharded.recipients = "b@example.com"
    sharded.save()
    AlarmChannel.objects.create(name="more", kind="email", recipients="c@example.com")
    rule.channels.clear()
    copy_from_home("other")
    assert copies.get(name="ops").recipients == "b@example.com"
    assert copies.get(name="ops").last_sent_at is not None
    assert find_rule("lag", "other").channels is None
    rule.delete()
    sharded.delete()
    copy_from_home("other")
    assert [row.name for row in copies.all()] == ["more"]
    assert not AlarmRule.objects.using("other").exists()


def test_a_channel_that_is_renamed_keeps_what_waits_for_it(sharded: AlarmChannel) -> None:
    AlarmRule.objects.create(name="lag", metric="lag").channels.set([sharded])
    copy_from_home("other")
    copy = AlarmChannel.objects.using("other").get()
    AlarmNotification.objects.using("other").create(channel=copy, event="test")
    AlarmChannel.objects.create(name="more", kind="email", recipients="c@example.com")
    sharded.name = "ops-team"
    sharded.save()
    copy_from_home("other")
    assert AlarmNotification.objects.using("other").due().get().channel.name == "ops-team"
    assert find_rule("lag", "other").channels == frozenset([copy.pk])


def test_while_the_one_database_is_away_its_last_rules_hold(sharded: AlarmChannel) -> None:
    copy_from_home("other")
    sharded.delete()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections["default"].settings_dict, "NAME", "/nowhere/none")
        copy_from_home("other")
    assert AlarmChannel.objects.using("other").get().name == "ops"


def test_a_database_that_is_no_shard_keeps_its_own(
    sharded: AlarmChannel, ems_settings: Any
) -> None:
    ems_settings(SHARDS={})
    copy_from_home("other")
    copy_from_home("default")
    assert not AlarmChannel.objects.using("other").exists()
    assert AlarmChannel.objects.using("default").exists()


def test_a_rule_that_cannot_be_muted_everywhere_is_muted_nowhere(
    sharded: AlarmChannel, admin_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute_unless_home(name: str, time: Any, using: str) -> None:
        if using == "default":
            raise OperationalError(2013, "Lost connection to server during query")
        mute(name, time, using)

    monkeypatch.setattr(alarms, "mute", mute_unless_home)
    monkeypatch.setattr(admin_client, "raise_request_exception", False)
    page = reverse("admin:ems_monitoring_overview_alarms") + "?database=other"
    response = admin_client.post(page, {"verb": "mute", "rule": "lag", "hours": "8"})
    assert response.status_code == 500
    assert find_rule("lag", "other").muted_until is None


def test_who_mutes_a_rule_on_the_page_of_a_shard_mutes_it_everywhere(
    sharded: AlarmChannel, admin_client: Any
) -> None:
    AlarmRule.objects.create(name="gone", metric="lag").delete()
    page = reverse("admin:ems_monitoring_overview_alarms") + "?database=other"
    admin_client.post(page, {"verb": "mute", "rule": "lag", "hours": "8"})
    for alias in ("default", "other"):
        assert find_rule("lag", alias).muted_until is not None
    entry = LogEntry.objects.get()
    assert entry.object_id == str(AlarmRule.objects.using("default").get().pk)
    assert admin_client.get(page).status_code == 200
