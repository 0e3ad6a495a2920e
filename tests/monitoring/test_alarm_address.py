"""A notification leads to the page of its alarm, wherever the project says where that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import modify_settings, override_settings

from monitoring.alarms.address import page_of
from monitoring.alarms.delivering import deliver, send_test
from monitoring.models import Alarm, AlarmNotification
from tests.monitoring.alarming import alarm, channel, receiver

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/admin/ems_monitoring/overview/alarms/"
Set = Callable[..., None]


def notify(about: Alarm, **where: Any) -> None:
    to = channel(where.pop("url", ""), **where)
    AlarmNotification.objects.create(alarm=about, channel=to, event="fired")
    assert deliver("default") == 1


def test_a_mail_has_the_address_of_the_alarm_and_its_runbook(ems_settings: Set) -> None:
    ems_settings(SITE_URL="https://ops.example.com/")
    about = alarm(runbook="https://wiki.example.com/lag")
    notify(about, kind="email", recipients="a@example.com")
    (sent,) = mail.outbox
    lines = str(sent.body).splitlines()
    assert f"Page: https://ops.example.com{PATH}#alarm-{about.pk}" in lines
    assert "Runbook: https://wiki.example.com/lag" in lines


def test_a_webhook_has_the_address_as_a_value_of_its_own(ems_settings: Set) -> None:
    ems_settings(SITE_URL="http://127.0.0.1:8000")
    about = alarm()
    with receiver() as server:
        notify(about, url=server.url)
        ems_settings(SITE_URL=None)
        notify(about, url=server.url, name="unlinked")
    linked, unlinked = server.bodies
    assert linked["page"] == f"http://127.0.0.1:8000{PATH}#alarm-{about.pk}"
    assert linked["page"] in linked["text"]
    assert unlinked["page"] is None
    assert "Page" not in unlinked["text"]


def test_the_address_leads_to_the_alarm_on_its_page(
    ems_settings: Set, admin_client: Client
) -> None:
    ems_settings(SITE_URL="http://testserver")
    about = alarm()
    path, _hash, place = page_of(about).removeprefix("http://testserver").partition("#")
    assert f'id="{place}"' in admin_client.get(path).text


def test_with_topics_on_several_databases_the_address_names_that_of_the_alarm(
    ems_settings: Set,
) -> None:
    ems_settings(SITE_URL="https://ops.example.com", SHARDS={"clicks": "other"})
    assert page_of(alarm()).startswith(f"https://ops.example.com{PATH}?database=default#")


def test_a_test_of_a_channel_says_whether_there_will_be_a_link(ems_settings: Set) -> None:
    where = channel("", kind="email", recipients="a@example.com")
    assert send_test(where, "default") == ""
    assert "set EMS['SITE_URL']" in str(mail.outbox[0].body)
    ems_settings(SITE_URL="https://ops.example.com")
    assert send_test(where, "default") == ""
    assert f"Page: https://ops.example.com{PATH}\n" in str(mail.outbox[1].body)


@pytest.fixture
def sites() -> Iterator[Any]:
    """The sites framework, with its table."""
    with modify_settings(INSTALLED_APPS={"append": "django.contrib.sites"}):
        from django.contrib.sites.models import Site

        with connection.schema_editor() as schema:
            schema.create_model(Site)
        try:
            with override_settings(SITE_ID=1):
                yield Site.objects
        finally:
            Site.objects.clear_cache()
            admin.site.unregister(Site)
            with connection.schema_editor() as schema:
                schema.delete_model(Site)


def test_without_the_setting_the_sites_framework_says_the_host(sites: Any) -> None:
    about = alarm()
    assert page_of(about) == ""  # the table has no row
    site = sites.create(pk=1, domain="example.com", name="as it is installed")
    assert page_of(about) == ""
    site.domain = "shop.example.org"
    site.save()
    assert page_of(about) == f"https://shop.example.org{PATH}#alarm-{about.pk}"


def test_a_project_without_the_admin_is_notified_without_an_address(
    ems_settings: Set, settings: Any
) -> None:
    ems_settings(SITE_URL="https://ops.example.com")
    settings.ROOT_URLCONF = "tests.no_such_module"
    notify(alarm(), kind="email", recipients="a@example.com")
    assert "Page" not in str(mail.outbox[0].body)
