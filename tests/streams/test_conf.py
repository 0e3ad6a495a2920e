"""Settings: wrong ones are named at once; run-time ones are fresh, and never trusted blindly."""

from __future__ import annotations

import time

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from streams import conf, runtime_settings
from streams.conf import DEFAULTS, LADDER, MINUTE
from streams.errors import ConfigurationError
from streams.models import SystemConfig


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"POLL_SECOND": 1}, "POLL_SECONDS"),
        ({"redis": None}, "redis"),
        ({"RETRY_DELAY": [1]}, "RETRY_DELAYS"),
        ({"WHATEVER_THIS_IS": 1}, "WHATEVER_THIS_IS"),
        ({"POLL_SECONDS": 0}, "POLL_SECONDS"),
        ({"POLL_SECONDS": -1}, "POLL_SECONDS"),
        ({"POLL_SECONDS": "1"}, "POLL_SECONDS"),
        ({"POLL_SECONDS": True}, "POLL_SECONDS"),
        ({"POLL_SECONDS": None}, "POLL_SECONDS"),
        ({"POLL_SECONDS": float("nan")}, "POLL_SECONDS"),
        ({"POLL_SECONDS": float("inf")}, "POLL_SECONDS"),
        ({"DRAIN_SECONDS": 0}, "DRAIN_SECONDS"),
        ({"DRAIN_SECONDS": "30"}, "DRAIN_SECONDS"),
        ({"RETRY_DELAYS": []}, "RETRY_DELAYS"),
        ({"RETRY_DELAYS": [10, 0]}, "RETRY_DELAYS"),
        ({"RETRY_DELAYS": [10, "20"]}, "RETRY_DELAYS"),
        ({"RETRY_DELAYS": [10, float("inf")]}, "RETRY_DELAYS"),
        ({"RETRY_DELAYS": 10}, "RETRY_DELAYS"),
        ({"RETRY_DELAYS": "10"}, "RETRY_DELAYS"),
        ({"SITE_URL": "ops.example.com"}, "SITE_URL"),
        ({"SITE_URL": "ftp://ops.example.com"}, "SITE_URL"),
        ({"SITE_URL": "https://"}, "SITE_URL"),
        ({"SITE_URL": "https://me:pw@ops.example.com"}, "SITE_URL"),
        ({"SITE_URL": "https://ops.example.com/?a=1"}, "SITE_URL"),
        ({"SITE_URL": "https://ops.example.com:port"}, "SITE_URL"),
        ({"SITE_URL": "https://ops. example.com"}, "SITE_URL"),
        ({"SITE_URL": 7}, "SITE_URL"),
        ({"DATABASE": "replica"}, "replica"),
        ({"REDIS": "nowhere"}, "nowhere"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_and_stops_the_project(wrong, says, settings):
    settings.EMS = wrong
    with pytest.raises(ConfigurationError, match=says):
        conf.settings()
    with pytest.raises(SystemCheckError, match=says):
        call_command("check", tags=["ems"])


@pytest.mark.parametrize("wrong", [[], "", 7, [("POLL_SECONDS", 1)]], ids=repr)
def test_the_setting_must_be_a_dict(wrong, settings):
    settings.EMS = wrong
    with pytest.raises(ConfigurationError, match="EMS"):
        conf.settings()


def test_without_the_setting_the_defaults_are_in_force(settings):
    del settings.EMS
    found = conf.settings()
    assert found == conf.Settings()
    assert (found.DATABASE, found.REDIS, found.POLL_SECONDS, found.DRAIN_SECONDS) == (
        "default",
        None,
        1.0,
        30.0,
    )
    assert found.RETRY_DELAYS == LADDER


@pytest.mark.django_db(databases=["default", "other"])  # Django 6.1 checks all of them
def test_without_the_setting_the_checks_find_nothing(settings):
    del settings.EMS
    call_command("check", tags=["ems"])


def test_the_ladder_is_that_of_rocketmq():
    assert (
        10,
        30,
        *(n * MINUTE for n in range(1, 11)),
        20 * MINUTE,
        30 * MINUTE,
        60 * MINUTE,
        120 * MINUTE,
    ) == LADDER
    assert len(LADDER) == DEFAULTS["consumerRetryMaxTimes"] == 16


def test_a_changed_setting_is_read_again(ems_settings):
    assert conf.database() == "default"
    assert conf.database("other") == "other"
    ems_settings(DATABASE="other", POLL_SECONDS=0.25)
    assert conf.database() == "other"
    assert conf.database("default") == "default"
    assert conf.settings().POLL_SECONDS == 0.25


# --- run-time settings ------------------------------------------------------------------------

ON_DISK = pytest.mark.django_db(transaction=True)


@ON_DISK
def test_a_row_overrides_the_default_in_the_code():
    assert {name: runtime_settings.system(name, "default") for name in DEFAULTS} == DEFAULTS
    SystemConfig.objects.create(name="consumerBatchSize", value=7)
    runtime_settings.forget()
    assert runtime_settings.system("consumerBatchSize", "default") == 7
    assert runtime_settings.system("consumerThreads", "default") == DEFAULTS["consumerThreads"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("autoCreateTopic", "no"),
        ("autoCreateTopic", 0),
        ("msgMaxSizeInBytes", "10"),
        ("msgMaxSizeInBytes", True),
        ("msgMaxSizeInBytes", 0),
        ("msgMaxSizeInBytes", -1),
        ("msgMaxSizeInBytes", 1.5),
        ("consumerBatchSize", [10]),
        ("consumerThreads", {}),
        ("consumerRetryMaxTimes", -1),
        ("consumeTimeoutSeconds", 0),
        ("noSuchSetting", 1),
    ],
)
@ON_DISK
def test_a_value_that_cannot_be_is_refused_by_forms_and_ignored_at_run_time(name, value):
    with pytest.raises(ValidationError):
        SystemConfig(name=name, value=value).full_clean()
    SystemConfig.objects.create(name=name, value=value)  # by hand, past the form
    runtime_settings.forget()
    assert {name: runtime_settings.system(name, "default") for name in DEFAULTS} == DEFAULTS


@ON_DISK
def test_no_retries_is_a_choice():
    SystemConfig(name="consumerRetryMaxTimes", value=0).full_clean()
    SystemConfig.objects.create(name="consumerRetryMaxTimes", value=0)
    runtime_settings.forget()
    assert runtime_settings.system("consumerRetryMaxTimes", "default") == 0


@ON_DISK
def test_what_is_read_is_kept_for_a_while_and_no_longer(django_assert_num_queries, monkeypatch):
    with django_assert_num_queries(1):
        runtime_settings.system("consumerThreads", "default")
        runtime_settings.system("consumerThreads", "default")
        runtime_settings.system("autoCreateTopic", "default")
    SystemConfig.objects.create(name="consumerThreads", value=2)
    assert runtime_settings.system("consumerThreads", "default") == 5
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + conf.FRESH_SECONDS)
    assert runtime_settings.system("consumerThreads", "default") == 2


@ON_DISK
def test_all_threads_share_what_is_read(in_thread, django_assert_num_queries):
    assert in_thread(runtime_settings.system, "consumerThreads", "default").result(10) == 5
    with django_assert_num_queries(0):
        runtime_settings.system("consumerThreads", "default")


@pytest.mark.django_db
def test_in_a_test_case_every_test_sees_its_own_rows_at_once():
    assert runtime_settings.system("consumerThreads", "default") == 5
    SystemConfig.objects.create(name="consumerThreads", value=2)
    assert runtime_settings.system("consumerThreads", "default") == 2
    assert not runtime_settings._cache
