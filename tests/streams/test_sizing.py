"""The planner of ``ems_plan`` multiplies what was measured by what is wished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from streams.sizing import plan as planner
from streams.sizing.costs import Costs, SustainedCosts, UnitCosts, costs

PARTS = UnitCosts(send=400.0, send_many=4.0, sequence=20.0, purge=10.0, batch=3.0, one=10.0)
CLIENT = UnitCosts(send=100.0, send_many=1.0, sequence=0.0, purge=1.0, batch=1.0, one=5.0)
TOGETHER = SustainedCosts(1000.0, groups=2, server=900.0, senders=200.0, consumers=30.0, purge=1.0)


@pytest.fixture
def unit_costs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Costs]:
    found = Costs({}, 1024, 100, PARTS, CLIENT, 50_000.0, TOGETHER)
    monkeypatch.setattr(planner, "costs", lambda: found)
    return found  # type: ignore[return-value]


def planned(**wish: float) -> dict[str, float]:
    return {line.what: line.value for line in planner.plan(planner.Wish(**wish))}  # type: ignore[arg-type]


def test_the_factor_is_all_at_once_by_the_sum_of_the_parts(unit_costs: Costs) -> None:
    assert unit_costs.server_factor == 900 / (400 + 20 + 2 * 10 + 10)
    assert unit_costs.sender_factor == 2
    assert unit_costs.consumer_factor == 3


@pytest.mark.usefixtures("unit_costs")
def test_a_plan_multiplies_the_unit_costs_by_the_rate() -> None:
    found = planned(rate=1e6, groups=2, cores=16, batch=100)
    each = (4 + 20 + 2 * 3 + 10) * 2 * planner.REPLICATION
    assert found["server CPU of a message, µs"] == pytest.approx(each)
    assert found["cores that work"] == pytest.approx(each)
    assert found["servers of 16 cores"] == 14, "108 cores, half of 16 each"
    assert found["partitions of a server"] == 3, "71,429 a second, and 25,000 for a sequencer"
    assert found["cores of the consumers, without their handlers"] == pytest.approx(6)


@pytest.mark.usefixtures("unit_costs")
def test_a_call_of_several_shares_the_cost_of_the_call() -> None:
    # 400 = a call + a message, and 4 = a call / 100 + a message: so both are 400 and 0.
    assert planned(rate=1, batch=1)["server CPU of a send, µs"] == pytest.approx(400)
    assert planned(rate=1, batch=10)["server CPU of a send, µs"] == pytest.approx(40)


@pytest.mark.usefixtures("unit_costs")
def test_handlers_that_take_longer_need_threads_processes_and_connections() -> None:
    found = planned(rate=100, groups=2, handler_seconds=0.1)
    assert found["threads for the handlers"] == 40, "20 work, and half of them may"
    assert found["processes of ems_consume"] == 5
    assert found["connections of ems_consume to a server"] == 5 * (8 + 4)


@pytest.mark.usefixtures("unit_costs")
def test_the_disk_is_for_all_days_that_messages_are_kept() -> None:
    found = planned(rate=100, size=1000, retention_days=10)
    kept = found["GB on the disk of a server, for 10 days"]
    assert kept == pytest.approx(100 * 1000 * planner.KEPT * 86400 * 10 / 1e9)


@pytest.mark.parametrize("wrong", [("--rate", "0"), ("--rate", "nan"), ("--size", "-1")])
def test_a_wish_that_is_not_positive_is_an_error(wrong: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match="must be positive"):
        call_command("ems_plan", *(wrong if wrong[0] == "--rate" else ("--rate", "1", *wrong)))


def test_the_command_says_on_what_its_costs_were_measured() -> None:
    out = StringIO()
    call_command("ems_plan", "--rate", "500", stdout=out)
    measured = costs().measured
    assert f"{measured['date']}, commit {measured['commit']}" in out.getvalue()
    assert "servers of 16 cores " in out.getvalue()
    out = StringIO()
    call_command("ems_plan", "--rate", "500", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["measured"] == measured
    assert found["wish"]["rate"] == 500
