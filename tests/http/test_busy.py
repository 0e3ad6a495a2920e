"""A process whose threads are all at work: what still answers, and who is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from streams.http import threads
from tests.http.conftest import Api, MakeToken
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def work(
    transactional_db: None, ems_settings: Callable[..., None]
) -> Iterator[Callable[[int], None]]:
    """Give the one thread of the pool so much work that does not end before the test."""
    ems_settings(HTTP_THREADS=1)
    end = threading.Event()

    def give(jobs: int) -> None:
        for _job in range(jobs):
            threads.pool().submit(end.wait, 10)

    yield give
    end.set()


def test_a_probe_does_not_wait_for_the_requests(api: Api, work: Callable[[int], None]) -> None:
    work(2)
    answer = api.get("/ems/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
    assert threads.pool()._work_queue.qsize() == 1  # they still wait


def test_who_comes_when_too_many_wait_is_told_to_come_again(
    api: Api, make_token: MakeToken, work: Callable[[int], None]
) -> None:
    token = make_token("read")
    work(threads.WAITING + 1)
    wait_for(lambda: threads.pool()._work_queue.qsize() == threads.WAITING)
    answer = api.get("/topics", token=token)
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")
    assert answer["Retry-After"] == "1"
    assert threads.pool()._work_queue.qsize() == threads.WAITING
