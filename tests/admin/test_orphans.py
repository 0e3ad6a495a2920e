"""Rows whose topic, partition or group was deleted keep a page: it names them by their ids."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from streams.models import Message
from tests.admin.test_roles import REGISTERED

pytestmark = pytest.mark.django_db

GONE = 10**6


def orphan(model: Any, field: str) -> Any:
    """The first row of the table, copied, with a parent that is not there."""
    row = model.objects.order_by("pk").first()
    row.pk = None
    setattr(row, field, GONE)
    row.save(force_insert=True)
    return row


# Nothing deletes these with their partition or group, nor keeps them from being deleted.
WITH_PARENTS = [
    (model, field.attname)
    for model in REGISTERED
    for field in model._meta.concrete_fields
    if field.name in ("partition", "group") and not getattr(field, "db_constraint", True)
]


@pytest.mark.parametrize(("model", "field"), WITH_PARENTS)
def test_the_page_of_a_row_without_its_parent_answers(world, as_role, model, field):
    row = orphan(model, field)
    url = reverse(f"admin:ems_{model._meta.model_name}_change", args=[row.pk])
    assert as_role("operator").get(url).status_code == 200
    assert as_role("operator").get(url.replace("change", "history")).status_code == 200


@pytest.mark.parametrize("model", [model for model, field in WITH_PARENTS if field[0] == "p"])
def test_the_list_with_such_a_row_answers(world, as_role, model):
    orphan(model, "partition_id")
    url = reverse(f"admin:ems_{model._meta.model_name}_changelist")
    assert as_role("operator").get(url).status_code == 200


def test_the_body_of_a_message_without_its_partition_can_be_downloaded(world, as_role):
    body = bytes(world.message.body)
    row = orphan(Message, "partition_id")
    response = as_role("operator").get(reverse("admin:ems_message_body", args=[row.pk]))
    assert response.content == body
    assert f"partition{GONE}-{row.offset}.json" in response["Content-Disposition"]
