"""The thread that looks for what requests wait for: whom it wakes, and when it ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from django.db import connections
from django.test import AsyncClient

from streams import send, wakeup
from streams.chaos.forks import in_fork
from streams.deliver import poller as looking
from streams.deliver.due import what_is_due
from streams.http import access
from streams.http.access import ApiRequest
from streams.http.pulling import holding, poller
from streams.http.pulling import waiting as waiting_module
from streams.http.pulling.groups import PulledGroup, ensure_group, pulled
from streams.http.pulling.log import read_log
from streams.http.pulling.poller import PullPoller
from streams.http.pulling.waiting import Waiter, waiting
from streams.http.routes import pull
from streams.log.sequencer import sequence
from streams.models import ApiToken, Message, UtcNow
from tests.faults import Relay
from tests.processes import wait_for

pytestmark = pytest.mark.usefixtures("transactional_db")

LONG = 60.0  # longer than wait_for() waits for anything here
SOON = 20.0


@pytest.fixture
def group(transactional_db: None) -> PulledGroup:
    ensure_group("orders", "mail", "default", start="earliest")
    return pulled("orders", "mail", "default")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """End the requests that a test has left waiting."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def held(group: PulledGroup, stack: ExitStack) -> Callable[..., Waiter]:
    """Return a request that has looked, has found nothing, and waits until its stack is closed."""

    def hold(until: ExitStack = stack) -> Waiter:
        async def enter() -> Waiter:  # where a loop runs
            return until.enter_context(waiting("default").for_group(group))

        waiter = asyncio.run(enter())
        looked_in_vain(waiter)
        return waiter

    return hold


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], PullPoller]]:
    """Start the thread, which waits as long as ever after each look."""

    def start() -> PullPoller:
        monkeypatch.setattr(looking, "QUICK_SECONDS", LONG)
        poller.ensure("default")
        return poller._pollers["default"]

    yield start
    poller.stop()


def looked_in_vain(waiter: Waiter) -> None:
    waiter.begin()
    waiter.found_nothing()


def is_sequenced() -> bool:
    return not Message.objects.inbox().exists()


def test_who_comes_during_a_look_is_woken_by_it(
    held: Callable[..., Waiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own claim has come before the message had an offset."""
    late: list[Waiter] = []

    def meanwhile(*args: Any, **options: Any) -> Any:
        late.append(held())
        return sequence(*args, **options)

    monkeypatch.setattr(looking, "sequence", meanwhile)
    send("orders", 1)
    PullPoller("default").step()
    assert late[0].woken


def test_who_found_nothing_a_moment_ago_is_woken_by_what_is_new(
    held: Callable[..., Waiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "REST_SECONDS", LONG)
    looker, waiter = PullPoller("default"), held()
    for _ in range(3):
        send("orders", 1)
        looker.step()
        assert waiter.woken
        looked_in_vain(waiter)
        looker.step()
        assert not waiter.woken  # what is there may be something that it must not get


def test_what_others_have_sequenced_is_new(held: Callable[..., Waiter]) -> None:
    looker, waiter = PullPoller("default"), held()
    looker.step()
    looked_in_vain(waiter)
    send("orders", 1)
    sequence("default")
    looker.step()
    assert waiter.woken


@pytest.mark.parametrize(("batch", "leaves_more"), [(10, False), (3, False), (2, True)])
def test_only_who_leaves_something_wakes_the_next_one(
    batch: int, leaves_more: bool, held: Callable[..., Waiter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each message would cost a look of somebody for whom there is nothing."""
    monkeypatch.setattr(poller, "ensure", lambda using: None)
    for _ in range(2):
        send("orders", 1)
    sequence("default")
    asked = pull.Pull.model_validate({"client": "one", "batch": batch})
    with ExitStack() as request:
        waiter, other = held(request), held()
        waiter.wake()
        waiter.begin()
        nothing = pull.Acking(ApiRequest(), [])
        found = pull._look("orders", "mail", "http@x@one", asked, nothing, 0.0, threading.Event())
        waiter.found()
        waiter.leaves_more = found.leaves_more
    assert [len(one.messages) for one in found.handed] == [2]
    assert other.woken == leaves_more


def test_who_is_gone_with_a_wake_up_passes_it_on(held: Callable[..., Waiter]) -> None:
    with ExitStack() as request:
        waiter, other = held(request), held()
        waiter.wake()
    assert other.woken


def test_who_claims_at_the_moment_is_woken_last(held: Callable[..., Waiter]) -> None:
    """It would pass it on, but only when its claim is over."""
    first, second = held(), held()
    first.begin()
    assert waiting("default").wake_group(_group_id())
    assert (first.woken, second.woken) == (False, True)
    assert waiting("default").wake_group(_group_id())
    assert first.woken
    assert not waiting("default").wake_group(_group_id())


def test_a_message_that_is_committed_during_a_look_is_found_by_another_one_at_once(
    group: PulledGroup,
    ems_settings: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    thread: Callable[[], PullPoller],
) -> None:
    ems_settings(POLL_SECONDS=LONG)
    looked, go_on = threading.Event(), threading.Event()

    def look(*args: Any) -> Any:
        found = what_is_due(*args)
        looked.set()
        go_on.wait(SOON)
        return found

    monkeypatch.setattr(looking, "what_is_due", look)
    looker = thread()
    assert looked.wait(SOON)
    send("orders", 1)
    looker.wake()
    go_on.set()
    wait_for(is_sequenced, timeout=SOON)


def test_nobody_waits_for_the_sweep(
    held: Callable[..., Waiter], monkeypatch: pytest.MonkeyPatch, thread: Callable[[], PullPoller]
) -> None:
    waiter, seen = held(), list[bool]()
    monkeypatch.setattr(poller, "sweep_if_due", lambda using: seen.append(waiter.woken))
    send("orders", 1)
    thread()
    wait_for(lambda: seen, timeout=SOON)
    assert seen[0]


def test_what_is_sent_between_two_pulls_concerns_this_process(
    group: PulledGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits at that moment, and the wake-up does not come again."""
    listener = wakeup.Listener("default", waiting("default").topics, lambda topics: None)
    assert listener._concerned(b'["orders"]') is None
    asked = pull.Pull.model_validate({"client": "one"})
    nothing = pull.Acking(ApiRequest(), [])
    pull._look("orders", "mail", "http@x@one", asked, nothing, 0.0, threading.Event())
    waiting("default").let_go()
    assert listener._concerned(b'["orders"]') == {"orders"}
    monkeypatch.setattr(waiting_module, "CONCERNS_SECONDS", 0.0)
    waiting("default").concern("orders")
    waiting("default").let_go()
    assert listener._concerned(b'["orders"]') is None


@pytest.mark.redis
def test_what_is_sent_between_two_pulls_is_in_the_log_before_the_second(
    group: PulledGroup,
    ems_settings: Callable[..., None],
    thread: Callable[[], PullPoller],
    looks: list[float],
) -> None:
    ems_settings(REDIS="redis", POLL_SECONDS=LONG)
    waiting("default").concern("orders")
    thread()
    wait_for(lambda: looks and wakeup._redis().pubsub_numsub(wakeup.channel("default"))[0][1])
    send("orders", 1)
    wait_for(is_sequenced, timeout=SOON)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return how many seconds each look of this process has said to wait."""
    ended: list[float] = []
    step = PullPoller.step

    def counted(self: PullPoller) -> float:
        ended.append(step(self))
        return ended[-1]

    monkeypatch.setattr(PullPoller, "step", counted)
    return ended


def test_a_thread_that_nobody_needs_ends(
    held: Callable[..., Waiter], looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "LINGER_SECONDS", 0.0)
    with ExitStack() as request:
        held(request)
        poller.ensure("default")
        first = poller._pollers["default"]
        wait_for(lambda: len(looks) >= 3)  # as long as a request waits, it looks
        assert first.is_alive()
    wait_for(lambda: not first.is_alive())
    assert not poller._pollers
    looks.clear()
    monkeypatch.setattr(poller, "LINGER_SECONDS", LONG)
    poller.ensure("default")  # the next pull
    wait_for(lambda: looks)


def test_no_thread_of_another_test_is_left() -> None:
    """It would be one that the test before has started, with what it knows of other tables."""
    assert not poller._pollers
    assert not [one for one in threading.enumerate() if one.name.startswith(poller.NAME)]


@pytest.mark.parametrize(("seconds", "ends"), [(59, False), (61, True)])
def test_it_ends_a_minute_after_the_last_pull(seconds: float, ends: bool) -> None:
    looker = PullPoller("default")
    looker.used_at -= seconds
    assert poller._ends(looker) == ends


@pytest.mark.mysql  # SQLite is in the process, and may hold a lock of its own
def test_a_fork_has_a_thread_of_its_own(
    held: Callable[..., Waiter],
    thread: Callable[[], PullPoller],
    looks: list[float],
    ems_settings: Callable[..., None],
) -> None:
    """As with gunicorn --preload: what the first process has in use stays in use in the fork."""
    ems_settings(POLL_SECONDS=LONG)
    held()
    thread()
    wait_for(lambda: looks)

    def pulls() -> None:
        assert not waiting("default")
        assert not holding._held
        send("orders", 1)
        poller.ensure("default")
        wait_for(is_sequenced, timeout=SOON)

    with poller._starting, waiting("default")._lock, holding._lock:
        assert in_fork(pulls) == 0


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.01)


def answered(method: str, path: str, token: str, data: Any, when: Callable[[], object]) -> Any:
    """Send a message when ``when`` says that the request waits; return the request's answer."""

    def send_one() -> None:
        send("orders", "new")
        connections.close_all()

    async def play() -> Any:
        body = json.dumps(data) if data else b""
        headers = {"Authorization": f"Bearer {token}"}
        call = AsyncClient().generic(
            method,
            f"/ems/v1/topics/orders{path}",
            body,
            "application/json",
            headers=headers,
            secure=True,
        )
        asked = asyncio.ensure_future(call)
        await _until(when)
        await asyncio.to_thread(send_one)
        return await asyncio.wait_for(asked, SOON)

    return asyncio.run(play()).json()


def test_a_held_read_of_the_log_is_woken_by_a_send(
    make_token: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send("orders", 0)
    sequence("default")
    reads = list[int]()

    def read(topic: str, number: int, start: int, *rest: Any) -> Any:
        found = read_log(topic, number, start, *rest)
        reads.append(start)  # now: what is sent once there are two is found by the third
        return found

    monkeypatch.setattr("streams.http.routes.log.read_log", read)
    path, token = "/partitions/0/messages?from=1&hold=20", make_token("read:orders", "body:orders")
    answer = answered("GET", path, token, None, lambda: len(reads) == 2 and waiting("default"))
    assert [message["body"] for message in answer["messages"]] == ["new"]
    assert (answer["next"], reads) == (2, [1, 1, 1])


@pytest.mark.parametrize("way", ["pull", "read"])
def test_a_held_request_whose_token_is_revoked_meanwhile_gets_nothing(
    group: PulledGroup, make_token: Callable[..., str], way: str
) -> None:
    def revoke() -> None:
        ApiToken.objects.update(revoked_at=UtcNow())
        access._known.clear()  # as after five seconds
        connections.close_all()

    def is_revoked() -> bool:
        if not any(one.sleeps for _group, held in _held() for one in held) and way == "pull":
            return False
        if not waiting("default"):
            return False
        with ThreadPoolExecutor(1) as thread:  # where a loop runs, the database is not asked
            thread.submit(revoke).result()
        return True

    token = make_token("consume:orders/mail", "read:orders", "body:orders")
    asked = {
        "pull": ("POST", "/groups/mail/pull", token, {"client": "one", "hold": 20}),
        "read": ("GET", "/partitions/0/messages?from=0&hold=20", token, None),
    }
    answer = answered(*asked[way], is_revoked)
    assert answer["code"] == "unauthorized"


@pytest.mark.redis
def test_redis_may_stop_and_come_back_while_pulls_are_held(
    group: PulledGroup,
    make_token: Callable[..., str],
    ems_settings: Callable[..., None],
    relay: Relay,
    looks: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    token = make_token("consume:orders/mail")

    def pull_held(after: Callable[[], object] = lambda: None) -> list[int]:
        asked = {"client": "one", "hold": 20}

        def is_held() -> bool:
            if not any(one.sleeps for _group, held in _held() for one in held):
                return False
            after()
            return True

        answer = answered("POST", "/groups/mail/pull", token, asked, is_held)
        return [one["first_offset"] for one in answer["deliveries"]]

    def is_listened_to() -> bool:
        with suppress(Exception):  # Redis is away
            return bool(wakeup._redis().pubsub_numsub(wakeup.channel("default"))[0][1])
        return False

    def only_a_wake_up_begins_a_look() -> None:
        looker = poller._pollers["default"]
        looker._poller._pause = LONG
        looker.wake()
        wait_for(lambda: looks[-1] >= LONG - 1)

    ems_settings(REDIS="redis", POLL_SECONDS=0.2)
    assert pull_held() == [0]
    assert pull_held(relay.stop) == [1]
    wait_for(lambda: "polling" in caplog.text)
    assert pull_held() == [2]
    relay.start()
    wait_for(is_listened_to)
    ems_settings(REDIS="redis", POLL_SECONDS=LONG)
    monkeypatch.setattr(looking, "QUICK_SECONDS", LONG)
    assert pull_held(only_a_wake_up_begins_a_look) == [3]


def _held() -> list[tuple[PulledGroup, list[Waiter]]]:
    return [*waiting("default")._groups.values()]


def _group_id() -> int:
    return waiting("default").groups()[0].group.pk
