"""A database that EMS cannot run on is an error of ``check``, not a failure at the first send."""

from __future__ import annotations

import pytest
from django.core.checks import Error
from django.db import connection

from streams.checks import check_settings

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


def errors() -> list[str | None]:
    return [message.id for message in check_settings() if isinstance(message, Error)]


def test_the_databases_that_ems_runs_on_are_no_error() -> None:
    assert connection.vendor in ("mysql", "sqlite")
    assert errors() == []


@pytest.mark.parametrize("vendor", ["postgresql", "oracle", "microsoft"])
def test_any_other_is(monkeypatch: pytest.MonkeyPatch, vendor: str) -> None:
    monkeypatch.setattr(connection, "vendor", vendor, raising=False)
    assert errors() == ["ems.E011"]
    (error,) = (message for message in check_settings() if message.id == "ems.E011")
    assert vendor in error.msg
