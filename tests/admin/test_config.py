"""System settings: validated, logged, in force within 5 seconds."""

from __future__ import annotations

import time

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from streams import conf, runtime_settings, send
from streams.errors import MessageTooLarge
from streams.models import SystemConfig

pytestmark = pytest.mark.django_db

ADD = reverse("admin:ems_systemconfig_add")
LIST = reverse("admin:ems_systemconfig_changelist")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("consumerThreads", "0", "too small"),
        ("consumerBatchSize", "1001", "at most 1000"),
        ("consumerThreads", "true", "type int"),
        ("autoCreateTopic", "1", "type bool"),
        ("consumerThreads", '"5"', "type int"),
        ("consumerThreads", "five", "Enter a valid JSON"),
        ("consumerThreads", "1e3", "type int"),
        ("consumerThreads", "1" * 5000, "Enter a valid JSON"),
        ("consumerThreads", "[" * 100_000, "Enter a valid JSON"),
        ("consumeTimeoutSeconds", str(2**31), "too large"),
        ("noSuchThing", "5", "not one of the available choices"),
        ("consumerThreads", "", "required"),
    ],
)
def test_a_value_that_cannot_be_is_refused(db, as_role, name, value, problem):
    response = as_role("operator").post(ADD, {"name": name, "value": value})
    assert response.status_code == 200
    assert problem in response.text
    assert not SystemConfig.objects.exists()
    assert not LogEntry.objects.exists()


def test_a_new_setting_has_no_value_yet(db, as_role):
    assert "null" not in as_role("operator").get(ADD).text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("consumerRetryMaxTimes", "0", 0),
        ("consumerBatchSize", "1000", 1000),
        ("autoCreateTopic", "false", False),
    ],
)
def test_a_good_value_is_written_and_logged(db, as_role, name, text, value):
    assert as_role("operator").post(ADD, {"name": name, "value": text}).status_code == 302
    assert SystemConfig.objects.overrides() == {name: value}
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_repr) == ("operator", name)
    assert as_role("operator").post(ADD, {"name": name, "value": text}).status_code == 200
    assert SystemConfig.objects.count() == 1  # a name is there once


def test_a_change_is_in_force_within_5_seconds_and_dated(db, as_role, monkeypatch):
    client = as_role("operator")
    # As in a process of its own, which caches: a TestCase does not.
    monkeypatch.setattr("streams.database.remembered.in_test_case", lambda using: False)
    runtime_settings.forget()
    client.post(ADD, {"name": "msgMaxSizeInBytes", "value": "10"})
    with pytest.raises(MessageTooLarge):
        send("orders", "more than ten characters")
    setting = SystemConfig.objects.get()
    url = reverse("admin:ems_systemconfig_change", args=[setting.pk])
    client.post(url, {"value": "100"})
    written = SystemConfig.objects.get().updated_at
    assert written > setting.updated_at
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + conf.FRESH_SECONDS)
    assert runtime_settings.system("msgMaxSizeInBytes", "default") == 100
    runtime_settings.forget()


def test_saving_without_a_change_writes_no_other_value(db, as_role):
    setting = SystemConfig.objects.create(name="consumerThreads", value=3)
    url = reverse("admin:ems_systemconfig_change", args=[setting.pk])
    assert as_role("operator").post(url, {"value": "3"}).status_code == 302
    assert SystemConfig.objects.overrides() == {"consumerThreads": 3}


def test_the_list_shows_what_is_in_force_with_its_default_and_meaning(db, as_role):
    SystemConfig.objects.create(name="consumerThreads", value=3)
    SystemConfig.objects.create(name="consumerBatchSize", value="ten")  # by hand, and wrong
    response = as_role("viewer").get(LIST)
    in_force = {s["name"]: s["value"] for s in response.context["in_force"]}
    assert in_force == {**conf.DEFAULTS, "consumerThreads": 3}
    assert all(setting["meaning"] for setting in response.context["in_force"])


def test_deleting_a_setting_brings_the_default_back(db, as_role):
    setting = SystemConfig.objects.create(name="consumerThreads", value=3)
    url = reverse("admin:ems_systemconfig_delete", args=[setting.pk])
    client = as_role("operator")
    assert client.get(url).status_code == 200
    assert SystemConfig.objects.exists()
    assert client.post(url, {"post": "yes"}).status_code == 302
    assert SystemConfig.objects.overrides() == {}
    assert LogEntry.objects.get().object_repr == "consumerThreads"
