"""Keeps the tables of this checkout, with rows in each, for ``make schema ARGS=0.1.0``.

Not a test, and not found as one: pytest has the database, made by the migrations.
"""

from __future__ import annotations

import os
from datetime import date, datetime, time
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models
from django.utils import timezone

from streams import consumer, send
from streams.models import Step, UtcNow
from streams.testing import drain
from tests.admin.world import make_world
from tests.upgrades.dump import path_of, write

LABELS = ("ems", "ems_monitoring", "ems_tasks")
VALUES: dict[type[models.Field[Any, Any]], Any] = {
    models.DateTimeField: timezone.now,
    models.DateField: date.today,
    models.TimeField: time,
    models.BinaryField: lambda: b"\x00\xff",
    models.BooleanField: bool,
    models.JSONField: dict,
    models.TextField: lambda: "text",
    models.CharField: lambda: "x",
    models.UUIDField: lambda: "0" * 32,
    models.FloatField: float,
    models.IntegerField: lambda: 1,
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_registry")
def test_keep(vendor: str) -> None:
    release = os.environ["EMS_KEEP_RELEASE"]
    make_world()
    Step.objects.update(last_run_at=UtcNow())  # the world has them an hour ahead
    _traffic()
    for label in LABELS:
        for model in apps.get_app_config(label).get_models(include_auto_created=True):
            if model._meta.managed and not model._base_manager.exists():
                _row(model)
    write(connection, path_of(release, vendor))


def _traffic() -> None:
    """Leave a group in the middle of its log: test_upgrade.py goes on from there."""

    @consumer("upgrade", group="counter")
    def count(message: Any) -> None:
        pass

    for number in range(10):
        send("upgrade", {"n": f"kept-{number}"}, key=f"key-{number % 3}")
    drain(group="counter")
    for number in range(10, 20):
        send("upgrade", {"n": f"kept-{number}"}, key=f"key-{number % 3}")


def _row(model: type[models.Model]) -> models.Model:
    values = {
        field.attname: _value(field)
        for field in model._meta.concrete_fields
        if not isinstance(field, models.AutoField)
    }
    row = model(**values)
    row.save_base(raw=True, force_insert=True)
    return row


def _value(field: Any) -> Any:
    if isinstance(field, models.ForeignKey):
        found = field.related_model._base_manager.order_by("pk").first()
        return (found or _row(field.related_model)).pk
    if field.has_default():
        return field.get_default()
    kind = next((kind for kind in type(field).__mro__ if kind in VALUES), None)
    assert kind is not None, field
    value = VALUES[kind]()
    return value.astimezone() if isinstance(value, datetime) else value
