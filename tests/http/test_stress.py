"""Stress tests over HTTP: off by default, bounded, one at a time, counted in the tables."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from streams import stress
from streams.http import stressing
from streams.http.problems import Problem
from streams.models import StressRun, Topic, UtcNow
from streams.operate.topic_deletion import TopicDeletion
from streams.operate.topics import create
from streams.stress import Load, StressResult, carry_out
from tests.http.conftest import Api, MakeToken
from tests.processes import wait_for
from tests.sessions import Threads

pytestmark = pytest.mark.django_db


@pytest.fixture
def load(api: Api, make_token: MakeToken, ems_settings: Any) -> Api:
    """Return a client that may load topics that begin with "stress.a"."""
    ems_settings(STRESS=True)
    api.token = make_token("stress:stress.a*")
    return api


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Start no process; return the runs that would have one."""
    runs: list[int] = []
    monkeypatch.setattr("streams.http.routes.stress.start", lambda run, using: runs.append(run))
    return runs


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


def test_stress_tests_are_off_unless_the_project_turns_them_on(
    api: Api, make_token: MakeToken, started: list[int]
) -> None:
    api.token = make_token("stress")
    assert code(api.post("/stress", {"topic": "stress.a"})) == (403, "stress_off")
    assert not StressRun.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "orders"},
        {"topic": "stressed"},
        {"messages": 100_001},
        {"messages": 0},
        {"size": 1024 * 1024 + 1},
        {"writers": 9},
        {"rate": 0},
        {"seconds": 600},
        {"group": "a b"},
    ],
)
def test_a_run_is_bounded(load: Api, started: list[int], wrong: dict[str, Any]) -> None:
    assert load.post("/stress", {"topic": "stress.a", **wrong}).status_code == 422
    assert not StressRun.objects.exists()


def test_one_run_at_a_time(load: Api, make_token: MakeToken, started: list[int]) -> None:
    assert load.post("/stress", {"topic": "stress.b"}).status_code == 403
    answer = load.post("/stress", {"topic": "stress.a", "messages": 5, "rate": 10})
    assert answer.status_code == 202, answer.content
    run = answer.json()["run"]
    assert started == [run]
    assert code(load.post("/stress", {"topic": "stress.a2"})) == (409, "stress_running")
    shown = load.get(f"/stress/{run}").json()
    assert (shown["state"], shown["asked"], shown["committed"]) == ("running", 5, None)
    other = make_token("stress:stress.b")
    assert code(load.get(f"/stress/{run}", token=other)) == (404, "unknown")
    # A run that was killed holds up the others for five minutes.
    StressRun.objects.update(started_at=UtcNow(timedelta(minutes=-6)))
    assert load.get(f"/stress/{run}").json()["state"] == "lost"
    create("stress.a", 1, "default")
    assert code(load.post("/stress", {"topic": "stress.a"})) == (409, "topic_exists")
    assert load.post("/stress", {"topic": "stress.a2"}).status_code == 202


def test_a_run_tells_what_it_has_counted_and_leaves_nothing(
    load: Api, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = StressResult(
        accepted=9,
        committed=10,
        distinct_ids=10,
        sequenced=10,
        finished={"stress": 10},
        missing={"stress": 0},
        repeated={"stress": 1},
        sending_seconds=2.0,
        send_ms={"p50": 1.0, "p95": 2.0, "p99": 3.0},
    )
    monkeypatch.setattr(stress.Stress, "run", lambda self: result)
    monkeypatch.setattr(TopicDeletion, "wait", lambda self: None)
    run = load.post("/stress", {"topic": "stress.a"}).json()["run"]
    carry_out(run, "default")
    shown = load.get(f"/stress/{run}").json()
    assert shown["state"] == "done"
    names = ("committed", "distinct_ids", "sequenced", "consumed", "missing", "repeated", "rate")
    assert [shown[name] for name in names] == [10, 10, 10, 10, 0, 1, 4.5]
    assert (shown["p99_ms"], shown["row_lock_waits"]) == (3.0, None)
    assert not Topic.objects.exists()
    assert load.post("/stress", {"topic": "stress.a"}).status_code == 202


def test_a_topic_of_somebody_else_is_left_alone(load: Api, started: list[int]) -> None:
    run = load.post("/stress", {"topic": "stress.a"}).json()["run"]
    create("stress.a", 1, "default")
    carry_out(run, "default")
    shown = load.get(f"/stress/{run}").json()
    assert (shown["state"], shown["error"]) == (
        "failed",
        "TopicExists: There is a topic stress.a already.",
    )
    assert Topic.objects.exists()


def test_a_run_that_fails_says_so(
    load: Api, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise OperationalError(2006, "gone")

    monkeypatch.setattr(stress.Stress, "run", fail)
    monkeypatch.setattr(TopicDeletion, "wait", lambda self: None)
    run = load.post("/stress", {"topic": "stress.a"}).json()["run"]
    with pytest.raises(OperationalError):
        carry_out(run, "default")
    shown = load.get(f"/stress/{run}").json()
    assert (shown["state"], shown["committed"]) == ("failed", None)
    assert "OperationalError" in shown["error"]
    assert not Topic.objects.exists()


def test_a_run_whose_process_does_not_start_holds_up_no_other(
    load: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("streams.http.stressing.subprocess.Popen", fail)
    for _ in range(2):
        assert load.post("/stress", {"topic": "stress.a"}).status_code == 500
    assert not StressRun.objects.running().exists()


@pytest.mark.mysql
def test_of_two_requests_at_once_one_begins(transactional_db: None, in_thread: Threads) -> None:
    together = threading.Barrier(2)

    def begin(number: int) -> bool:
        together.wait(30)
        load = Load(f"stress.{number}", 1, 60.0, 100, 1, None, 0)
        try:
            stressing.begin(load, "test", "default")
        except Problem:
            return False
        return True

    begun = [one.result(60) for one in [in_thread(begin, 1), in_thread(begin, 2)]]
    assert sorted(begun) == [False, True]
    assert StressRun.objects.count() == 1


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_process_of_its_own_carries_it_out(
    transactional_db: None,
    load: Api,
    process_env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in process_env.items():
        monkeypatch.setenv(name, value)
    run = load.post("/stress", {"topic": "stress.a", "messages": 200, "writers": 2}).json()["run"]

    def ended() -> Any:
        shown = load.get(f"/stress/{run}").json()
        return shown if shown["state"] in ("done", "failed", "lost") else None

    shown = wait_for(ended, timeout=110)
    assert shown["state"] == "done", shown
    names = ("asked", "committed", "distinct_ids", "sequenced", "consumed")
    assert [shown[name] for name in names] == [200] * 5
    assert (shown["missing"], shown["errors"]) == (0, {})
    assert not Topic.objects.exists()
