"""A skip may be killed or cut off anywhere: it is done once, with its dead letter, or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from streams import Outgoing, consumer, send_many
from streams.chaos.forks import in_fork
from streams.consume import registry
from streams.errors import NotBlocked
from streams.models import ConsumerGroup, Cursor, DeadMessage, Delivery, State
from streams.observe.audit.walk import audit
from streams.operate.acts.unblock import Shown, retry_now, skip, what_blocks
from streams.testing import drain
from tests.faults import Guillotine, Severed
from tests.proxy import Proxy
from tests.sessions import Session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("clean_registry"),
]


def block(name: str) -> Counter[int]:
    """Make an ordered group that 2 blocks; return how often each message is handled from now on."""
    times: Counter[int] = Counter()
    registry._registered.clear()

    @consumer(name, group=name, ordered=True)
    def handle(message: Any) -> None:
        if message.body == 2:
            raise ValueError("no")
        times[message.body] += 1

    send_many([Outgoing(name, n, key="k") for n in range(5)])
    drain(name)
    return times


def group(name: str) -> ConsumerGroup:
    return ConsumerGroup.objects.select_related("topic").get(name=name)


def skip_it(name: str) -> None:
    skip(group(name), Shown(0, 2, 2), "default", "ann")


def killed(name: str, point: int) -> None:
    Guillotine(point).install()
    skip_it(name)


def assert_skipped_once(name: str, times: Counter[int]) -> None:
    """The message is dead once, covered, and those after it are handled once."""
    letters = DeadMessage.objects.filter(group__name=name)
    covers = Delivery.objects.filter(group__name=name, state=State.SKIPPED)
    assert list(letters.values_list("offset", flat=True)) == [2]
    assert list(covers.values_list("first_offset", "last_offset", "dead")) == [(2, 2, 1)]
    drain(name)
    assert times == Counter([0, 1, 3, 4])
    assert audit("default") == []


def test_a_skip_may_be_killed_between_any_two_statements() -> None:
    for point in count(1):
        name = f"killed-{point}"
        times = block(name)
        code = in_fork(partial(killed, name, point))
        done = DeadMessage.objects.filter(group__name=name).exists()
        assert Cursor.objects.get(group__name=name).next_offset == (3 if done else 2)
        assert audit("default") == []
        if not done:
            skip_it(name)
        assert_skipped_once(name, times)
        if code == 0:
            return


@pytest.mark.exhaustive
@pytest.mark.mysql
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_skip_whose_connection_breaks_at_any_statement_is_done_once(
    second_connection: Callable[[], Session], done: bool
) -> None:
    session = second_connection()
    for point in count(1):
        name = f"cut-{point}"
        times = block(name)
        place = Shown.of(what_blocks(group(name), "default").worst[0])
        of = group(name)
        with Severed(point, session, done=done) as severed:
            assert skip(of, place, "default", "ann")
        assert_skipped_once(name, times)
        if not severed.fired:
            return


@pytest.mark.mysql
def test_a_skip_whose_commit_was_not_confirmed_is_done_once_and_said_to_be_done(
    transactional_db: None, proxied: Proxy
) -> None:
    times = block("mail")
    of = group("mail")
    proxied.lose_reply_to(b"COMMIT")
    assert skip(of, Shown(0, 2, 2), "default", "ann")
    assert proxied.fired == [b"COMMIT"]
    assert_skipped_once("mail", times)
    with pytest.raises(NotBlocked):
        skip(of, Shown(0, 2, 2), "default", "ann")


@pytest.mark.mysql
def test_an_attempt_on_demand_whose_commit_was_not_confirmed_is_said_to_be_done(
    transactional_db: None, proxied: Proxy
) -> None:
    block("mail")
    of = group("mail")
    proxied.lose_reply_to(b"COMMIT")
    retry_now(of, Shown(0, 2, 2), "default")
    assert proxied.fired == [b"COMMIT"]
    assert Cursor.objects.get().blocked_until is None
