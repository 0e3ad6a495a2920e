"""A client that had no answer repeats its pull with the same request_id, and keeps what it gets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from streams.database import remembered
from streams.http import threads
from streams.http.access import ApiRequest
from streams.http.pulling import clients, groups, holding
from streams.http.pulling.handing_out import Asked, Found, Handed, hand_out, take_back
from streams.http.pulling.receipts import named, receipt_of
from streams.http.routes import pull
from streams.models import Consumer, Delivery, RetryMessage, UtcNow
from streams.steps.sweep import sweep
from tests.http.conftest import Api, end_threads
from tests.http.test_pulling import GROUP, ack, fill, made, pulled

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def caller(api: Api, make_token: Callable[..., str]) -> None:
    api.token = make_token("send:orders", "consume:orders/*")


def handed(request_id: str) -> Sequence[Handed]:
    group = groups.pulled("orders", "mail", "default")
    assert group.limits is not None
    client = clients.client_id("abcdefgh", "one")
    asked = Asked(client, 10, timedelta(seconds=60), 0.0, request_id)
    return hand_out(group, group.limits, asked).handed


@pytest.mark.parametrize("ordered", [False, True])
def test_the_undo_of_a_request_leaves_what_its_repeat_got(api: Api, ordered: bool) -> None:
    made(api, ordered=ordered)
    fill(3)
    first = handed("request-1")
    (again,) = handed("request-1")
    take_back(first)
    assert named(receipt_of(again.delivery)).delivery.state == "START"
    take_back([again])  # that one is gone, too, and may be repeated as well
    assert pulled(api, "two") == []
    assert [len(one.messages) for one in handed("request-1")] == [3]


def test_the_undo_of_a_request_that_nobody_repeats_gives_all_back(api: Api) -> None:
    made(api)
    fill(3)
    take_back(handed("request-1"))
    (delivery,) = pulled(api, "two")
    assert (delivery["attempt"], len(delivery["messages"])) == (1, 3)


def test_a_repeat_gets_its_delivery_while_its_client_holds_a_message_that_runs_alone(
    api: Api,
) -> None:
    made(api)
    fill(1)
    for _death in range(2):
        pulled(api, timeout=60)
        Consumer.objects.update(lease_until=UtcNow(timedelta(seconds=-1)))
        clients._known.clear()
        sweep("default")
        RetryMessage.objects.update(due_at=UtcNow())
    RetryMessage.objects.update(due_at=UtcNow(timedelta(hours=1)))
    fill(1)
    (delivery,) = pulled(api, request_id="request-1")
    RetryMessage.objects.update(due_at=UtcNow())
    remembered.forget()
    assert [one["kind"] for one in pulled(api)] == ["retry"]  # this one runs alone
    (again,) = pulled(api, request_id="request-1")
    assert again["receipt"] == delivery["receipt"]


@pytest.mark.django_db(transaction=True)
def test_a_request_that_is_gone_takes_nothing_from_its_repeat(
    api: Api, transactional_db: None, ems_settings: Callable[..., None]
) -> None:
    """One thread is busy while the first request times out and its repeat comes."""
    ems_settings(HTTP_THREADS=1)
    made(api)
    fill(3)
    end_threads()
    name = clients.client_id("abcdefgh", "one")
    asked = pull.Pull.model_validate({"client": "one", "batch": 10, "request_id": "request-1"})

    async def play() -> Any:
        def look() -> asyncio.Task[Found]:
            gone = threading.Event()
            place = "orders", "mail", name, asked, pull.Acking(ApiRequest(), []), 0.0
            work = threads.on_a_thread(pull._look, *place, gone)
            return asyncio.ensure_future(holding.shielded(work, pull._taken_back, gone))

        free = threading.Event()
        blocked = threads.pool().submit(free.wait, 20)
        first = look()
        while threads.pool()._work_queue.qsize() < 1:
            await asyncio.sleep(0.01)
        first.cancel()
        repeat = look()
        while threads.pool()._work_queue.qsize() < 2:
            await asyncio.sleep(0.01)
        free.set()
        found = await repeat
        while holding._left:
            await asyncio.sleep(0.01)
        assert blocked.done()
        return found

    (got,) = asyncio.run(play()).handed
    assert Delivery.objects.get(pk=got.delivery.pk).token == got.delivery.token


def test_a_request_that_is_gone_before_its_turn_claims_nothing(api: Api) -> None:
    made(api)
    fill(1)
    gone = threading.Event()
    gone.set()
    name = clients.client_id("abcdefgh", "one")
    asked = pull.Pull.model_validate({"client": "one"})
    nothing = pull.Acking(ApiRequest(), [])
    assert not pull._look("orders", "mail", name, asked, nothing, 0.0, gone).handed
    assert not Delivery.objects.exists()


def test_a_retry_that_a_repeat_gets_unstarted_spends_its_attempt(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web server dies between the claim of the retry and its start."""
    made(api)
    fill(1)
    (delivery,) = pulled(api)
    retry = {"offset": 0, "outcome": "retry", "delay": 0}
    ack(api, delivery["receipt"], retry)

    def dies(self: Delivery, timeout: timedelta) -> None:
        raise OperationalError(1, "the process dies here")

    with monkeypatch.context() as broken:
        broken.setattr(Delivery, "start", dies)
        request = {"client": "one", "request_id": "request-1"}
        assert api.post(f"{GROUP}/pull", request).status_code == 503
    assert pulled(api, request_id="request-1")[0]["attempt"] == 2
    Delivery.objects.open().update(deadline=UtcNow(timedelta(seconds=-1)))
    sweep("default")
    assert RetryMessage.objects.get().attempt == 3
