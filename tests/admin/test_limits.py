"""Forms: an error stands below its field and names the limit, also for numbers no column holds."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.urls import reverse

pytestmark = pytest.mark.django_db

HUGE = "9" * 30


def errors(response: Any) -> dict[str, str]:
    """{field: its errors}, of a form that was refused."""
    assert response.status_code == 200, response.headers
    form = response.context["adminform"].form
    for field in form.errors:
        assert re.search(rf'<ul class="errorlist" id="id_{field}_error">', response.text), field
    return {field: " ".join(found) for field, found in form.errors.items()}


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("max_retries", HUGE, "less than or equal to 2147483647"),
        ("max_retries", "-1", "greater than or equal to 0"),
        ("consume_timeout", HUGE, "less than or equal to 2147483647"),
        ("consume_timeout", "0", "greater than or equal to 1"),
        ("batch", "1001", "less than or equal to 1000"),
        ("batch", HUGE, "less than or equal to 1000"),
        ("retry_policy", "soon", "is not a duration"),
    ],
)
def test_an_override_of_a_group_has_limits(world, as_role, field, value, limit):
    url = reverse("admin:ems_consumergroup_change", args=[world.mail.pk])
    found = errors(as_role("operator").post(url, {field: value}))
    assert list(found) == [field]
    assert limit in html.unescape(found[field])


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("name", "orders", "already exists"),
        ("name", "x" * 300, "at most 127 characters"),
        ("retention_seconds", "-1", "greater than or equal to 0"),
        ("retention_seconds", HUGE, "less than or equal to 3155760000"),
        ("retention_count", "-5", "greater than or equal to 1"),
        ("retention_count", HUGE, "less than or equal to 9223372036854775807"),
    ],
)
def test_a_topic_has_limits(world, as_role, field, value, limit):
    given = {"name": "new", "access": "read-write", field: value}
    found = errors(as_role("operator").post(reverse("admin:ems_topic_add"), given))
    assert list(found) == [field]
    assert limit in found[field]


def test_a_setting_names_its_limits(world, as_role):
    client, url = as_role("operator"), reverse("admin:ems_systemconfig_add")
    for value, limit in (("0", "at least 1"), (HUGE, "at most 1000")):
        found = errors(client.post(url, {"name": "consumerThreads", "value": value}))
        assert list(found) == ["value"]
        assert limit in found["value"]
