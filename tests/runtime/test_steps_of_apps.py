"""Steps of other apps run beside those of EMS, and one that fails ends nothing."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.db import OperationalError

from streams import consumer
from streams.consume.registry import registrations
from streams.process.supervisor import Supervisor
from streams.steps.of_apps import run_steps_of_apps


@pytest.fixture(params=[OperationalError(1205, "Lock wait timeout exceeded"), RuntimeError("no")])
def ran(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def broken(using: str) -> None:
        found.append(f"broken on {using}")
        raise request.param

    def right(using: str) -> None:
        found.append(f"right on {using}")

    monkeypatch.setattr(
        apps.get_app_config("hostapp"),
        "ems_steps",
        lambda: {"broken": broken, "right": right},
        raising=False,
    )
    return found


@pytest.mark.django_db(transaction=True)
def test_a_step_of_another_app_that_fails_ends_neither_the_others_nor_the_caller(
    ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    run_steps_of_apps("default")
    assert ran == ["broken on default", "right on default"]
    (record,) = [r for r in caplog.records if getattr(r, "ems_event", "") == "step.failed"]
    assert record.ems_step == "broken"  # type: ignore[attr-defined]


@pytest.mark.django_db(transaction=True)
def test_the_steps_of_other_apps_are_run_by_celery(ran: list[str]) -> None:
    tasks = pytest.importorskip("streams.tasks", exc_type=ImportError)
    tasks.steps()
    assert ran == ["broken on default", "right on default"]


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.django_db(transaction=True)
def test_the_steps_of_other_apps_are_run_by_consumers(ran: list[str]) -> None:
    @consumer("orders", group="g")
    def handler(message: object) -> None: ...

    Supervisor(list(registrations()), "default")._maintain()
    assert ran == ["broken on default", "right on default"]
