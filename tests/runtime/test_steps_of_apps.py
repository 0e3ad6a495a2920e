"""Steps of other apps run beside those of EMS, and one that fails ends nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import OperationalError

from streams import consumer
from streams.consume.registry import registrations
from streams.models.consumer import LEASE
from streams.process import supervisor
from streams.process.supervisor import Supervisor
from streams.steps import of_apps
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


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.django_db(transaction=True)
def test_sweeps_are_less_than_a_lease_apart_though_everything_takes_its_whole_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    swept: list[float] = []
    done: Counter[str] = Counter()

    def takes(name: str, seconds: float) -> Callable[..., bool]:
        def work(*args: object) -> bool:
            nonlocal now
            now += seconds
            done[name] += 1
            return True

        return work

    def sweep(using: str) -> None:
        swept.append(now)
        takes("sweep", 4.9)()

    steps = {name: takes(name, 4.9) for name in ("redrives", "audit", "alarms", "notifications")}
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(of_apps, "time", clock)
    monkeypatch.setattr(of_apps, "steps_of_apps", lambda: steps)
    monkeypatch.setattr(of_apps, "_left_out", {})
    monkeypatch.setattr(supervisor, "time", clock)
    monkeypatch.setattr(supervisor, "sweep_if_due", sweep)
    monkeypatch.setattr(supervisor, "purge_if_due", takes("purge", 2.0))

    @consumer("orders", group="g")
    def handler(message: object) -> None: ...

    one = Supervisor(list(registrations()), "default")
    monkeypatch.setattr(one, "_purge_at", 0.0)
    monkeypatch.setattr(one._progress, "step", lambda: None)
    for _ in range(2 * len(steps)):
        delay = one._maintain()  # moves the clock
        now += delay
    assert max(b - a for a, b in pairwise(swept)) < LEASE.total_seconds()
    assert {done[name] for name in steps} == {2}, done
    assert done["purge"] == len(swept)


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.django_db(transaction=True)
def test_a_sweep_is_due_each_time_that_maintenance_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def sweep(using: str) -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(supervisor, "sweep_if_due", sweep)
    monkeypatch.setattr(supervisor, "purge_if_due", lambda *args: False)
    monkeypatch.setattr(supervisor, "run_steps_of_apps", lambda *args: None)

    @consumer("orders", group="g")
    def handler(message: object) -> None: ...

    one = Supervisor(list(registrations()), "default")
    monkeypatch.setattr(one._progress, "step", lambda: None)
    assert one._maintain() == 5.0
