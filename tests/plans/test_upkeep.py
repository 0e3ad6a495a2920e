"""The plans of what runs all the time beside the consumers: looks, leases and the sweep."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams.consume import registry
from streams.consume.limits import Overrides
from streams.deliver.claim import groups_with_due_retries
from streams.deliver.due import Places, partitions, what_is_due
from streams.models import Delivery, Step, UtcNow
from streams.process.running_group import RunningGroup
from streams.process.shared.client import Client
from streams.steps.sweep import sweep, sweep_if_due
from tests.plans.seed import EXPIRED, Seed
from tests.plans.statements import explained

pytestmark = [pytest.mark.mysql, pytest.mark.django_db]


def test_the_look_for_due_retries_jumps_from_group_to_group(seeded: Seed) -> None:
    groups = [group.pk for group in seeded.groups]
    with explained() as statements:
        assert groups_with_due_retries(groups, "default") == set(groups)
    statements.assert_sound()
    (retries,) = statements
    assert retries.indexes == ["ems_retry_msg.ems_retry_due"]
    # A loose index scan: retries that wait for their time are not stepped over.
    assert "Using index for group-by" in retries.steps[0].extra, retries


def test_an_outlook_reads_the_cursors_and_jumps_to_what_is_due(seeded: Seed) -> None:
    places = Places([group.pk for group in seeded.groups], partitions("default"))
    with explained() as statements:
        assert what_is_due(places, "default").groups == set(places.groups)
    statements.assert_sound()
    (outlook,) = statements
    steps = {step.table: step for step in outlook.steps}
    assert steps["ems_cursor"].key == "ems_cursor_place"
    for table in ("ems_msg", "ems_retry_msg"):
        # A loose index scan: what waits for its time is not stepped over.
        assert "Using index for group-by" in steps[table].extra, outlook


def test_leases_are_renewed_by_client(seeded: Seed) -> None:
    client = Client([group.pk for group in seeded.groups], "default")
    client.register()
    with explained() as statements:
        assert client.renew()
    statements.assert_sound()
    (renewal,) = statements
    assert renewal.indexes == ["ems_client.ems_client_group"]
    with explained() as statements:
        client.deregister()
    assert {tuple(s.indexes) for s in statements} == {("ems_client.ems_client_group",)}


def test_the_sweep_reads_open_deliveries_only(seeded: Seed) -> None:
    with explained() as statements:
        assert sweep("default") == 2 * EXPIRED * len(seeded.groups)
    statements.assert_sound()
    looks = statements.on("ems_topic_group_log")
    assert looks[0].indexes[0] == "ems_topic_group_log.ems_log_open"
    joined = {"ems_group.PRIMARY", "ems_topic.PRIMARY", "ems_partition.PRIMARY"}
    assert set(looks[0].indexes[1:4]) == joined
    # By id, and whether the messages of a dead process have killed another one before.
    found = {s.indexes[0] for s in looks[1:]}
    assert found == {"ems_topic_group_log.PRIMARY", "ems_topic_group_log.ems_log_place"}
    updates = statements.on("ems_topic_group_log", "UPDATE")
    assert {s.indexes[0] for s in updates} == {"ems_topic_group_log.PRIMARY"}
    (farewell,) = statements.on("ems_client", "DELETE")
    assert farewell.indexes == ["ems_client.ems_client_lease"]


def test_after_an_outage_the_sweep_extends_open_deliveries_only(seeded: Seed) -> None:
    Step.objects.update(last_run_at=UtcNow(-timedelta(days=1)))
    with explained() as statements:
        assert sweep_if_due("default") == 0
    locking = statements.only("ems_topic_group_log", "SKIP LOCKED")
    assert locking.indexes == ["ems_topic_group_log.ems_log_open"]
    (extension,) = statements.on("ems_topic_group_log", "UPDATE")
    assert extension.indexes == ["ems_topic_group_log.PRIMARY"]
    assert not Delivery.objects.open().filter(deadline__lt=UtcNow()).exists()


def test_a_group_is_found_by_name_and_looked_up_by_key(
    seeded: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.consumer("topic-1", group="group-1")(print)
    registration = registry.find("topic-1", "group-1")
    assert registration
    with explained() as statements:
        feed = RunningGroup(registration, "default", Overrides())
        assert feed.limits()
    statements.assert_sound()
    found, current = statements.on("ems_group")
    assert "ems_group.ems_group_name" in found.indexes
    assert "ems_group.PRIMARY" in current.indexes
