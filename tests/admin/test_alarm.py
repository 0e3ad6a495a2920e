"""Every page of EMS says when nothing sequences or consumes."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from streams.admin.alarm import alarm
from streams.models import Consumer, ConsumerGroup, Step, UtcNow
from streams.models.consumer import LEASE
from tests.admin.test_roles import pages
from tests.admin.world import run_steps
from tests.monitoring.alarming import alarm as firing

pytestmark = pytest.mark.django_db


def ran(name: str, ago: timedelta) -> None:
    Step.objects.update_or_create(name=name, defaults={"last_run_at": UtcNow(-ago)})


@pytest.mark.exhaustive
def test_every_page_has_it_and_none_when_all_is_well(world, as_role):
    client = as_role("operator")

    def with_alarm():
        found = []
        for _, page, url in pages(world):
            response = client.get(url)
            if page != "body" and response.status_code == 200:
                found.append(("ems-alarm" in response.text, url))
        return found

    well = with_alarm()
    assert len(well) > 30
    assert not [path for has_it, path in well if has_it]
    Step.objects.update(last_run_at=UtcNow(-timedelta(hours=1)))
    assert not [path for has_it, path in with_alarm() if not has_it]


def test_the_pages_of_the_monitoring_have_it_unless_they_show_more(world, admin_client):
    Step.objects.update(last_run_at=UtcNow(-timedelta(hours=1)))
    link = f'<a href="{reverse("admin:ems_step_changelist")}">No consumer or beat has run since'
    for name in ("topics", "groups", "search", "pipeline"):
        url = reverse(f"admin:ems_monitoring_overview_{name}")
        assert link in admin_client.get(url).text, name
        refreshed = admin_client.get(url, headers={"X-Requested-With": "XMLHttpRequest"})
        assert "ems-alarm" not in refreshed.text, name
    for name in ("changelist", "alarms"):
        url = reverse(f"admin:ems_monitoring_overview_{name}")
        assert '"ems-alarm"' not in admin_client.get(url).text, name


def test_each_sentence_leads_to_the_page_that_it_is_about(world, as_role):
    topics = reverse("admin:ems_topic_changelist")

    def link():
        (found,) = re.findall(r'<p class="ems-alarm".*?</p>', as_role("operator").get(topics).text)
        return re.findall(r'href="([^"]+)"', found)

    Consumer.objects.update(lease_until=UtcNow(-LEASE))
    assert link() == [reverse("admin:ems_consumergroup_changelist")]
    Step.objects.update(last_run_at=UtcNow(-timedelta(hours=1)))
    assert link() == [reverse("admin:ems_step_changelist")]
    only = as_role("staff", "ems.view_topic").get(topics).text
    assert re.findall(r'<p class="ems-alarm" role="alert"><strong>No consumer', only)


def test_a_critical_alarm_leads_to_its_page(world, admin_client):
    row = firing()
    page = reverse("admin:ems_monitoring_overview_alarms")
    html = admin_client.get(reverse("admin:ems_topic_changelist")).text
    assert f'<a href="{page}#alarm-{row.pk}">1 alarm fires: mail on orders' in html


def test_it_has_nothing_to_say_to_a_stranger(world, as_role):
    Step.objects.update(last_run_at=UtcNow(-timedelta(hours=1)))
    for role in ("anonymous", "staff"):
        client = as_role(role)
        for _, _, url in pages(world):
            assert "ems-alarm" not in client.get(url, follow=True).text


def test_it_tells_what_is_missing_and_since_when(world):
    hour = timedelta(hours=1)
    assert alarm("default").text == ""
    ran("sequence", hour)
    ran("sweep", 2 * hour)
    since = timezone.localtime(Step.objects.get(name="sequence").last_run_at)
    assert alarm("default").text == (
        f"No consumer or beat has run since {since:%Y-%m-%d %H:%M:%S %Z}: messages wait."
    )
    ran("sweep", timedelta(0))
    assert alarm("default").text.startswith(
        f"Nothing has been sequenced since {since:%Y-%m-%d %H:%M}"
    )
    run_steps()
    ran("sweep", hour)
    assert alarm("default").text.startswith("Leases have not been swept since")
    Step.objects.all().delete()
    assert alarm("default").text == (
        "No consumer or beat has run since the tables of EMS were created: messages wait."
    )
    ran("sweep", timedelta(0))
    assert alarm("default").text.startswith("Nothing has been sequenced since the tables")


def test_beat_alone_sequences_but_nobody_consumes(world):
    Consumer.objects.update(lease_until=UtcNow(-LEASE))
    assert alarm("default").text.startswith("No consumer is running")
    ConsumerGroup.objects.pause()  # then nobody need run
    assert alarm("default").text == ""
    ConsumerGroup.objects.resume()
    Consumer.objects.update(lease_until=UtcNow(LEASE))
    assert alarm("default").text == ""


def test_a_step_is_silent_only_after_a_lease(world):
    ran("sequence", LEASE - timedelta(seconds=5))
    assert alarm("default").text == ""
    ran("sequence", LEASE + timedelta(seconds=1))
    assert alarm("default").text != ""
