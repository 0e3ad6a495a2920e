"""The audit over resets and replays, in windows much smaller than they are: nothing is found where
nothing is lost, whatever happens in whatever order, and nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from streams import Outgoing, consumer, send_many
from streams.consume import registry
from streams.consume.limits import limits
from streams.consume.outcome.settle import settle
from streams.consume.subscription import subscribe
from streams.deliver.claim import Claimer
from streams.deliver.handling import Handling
from streams.errors import LeaseLost, NothingToUndo, UnknownReplay
from streams.log.sequencer import sequence
from streams.models import (
    ConsumerGroup,
    Cursor,
    Delivery,
    Kind,
    Message,
    Partition,
    RetryMessage,
    State,
)
from streams.observe.audit import walk
from streams.operate.replay import Span, cancel, start
from streams.operate.reset import Reset, towards
from streams.operate.target import Target
from streams.steps.sweep import sweep
from streams.testing import advance, drain
from tests.consuming import LONG_AFTER, consume_the_rest

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WINDOW", 7)


def found() -> list[str]:
    return [str(finding) for finding in walk.audit("default")]


class World:
    """One group, and everything that can happen to it but a skip of what it has not seen."""

    def __init__(self, seed: int, *, ordered: bool) -> None:
        self.random = Random(seed)  # noqa: S311 - to be the same in every run
        self.seen: Counter[int] = Counter()
        self.sent = 0
        self.held: list[Handling] = []
        self.fails = True

        @consumer("orders", group="mail", ordered=ordered, max_retries=100)
        def mail(message):
            if self.fails and self.random.random() < 0.3:
                raise ValueError("no")
            self.seen[message.offset] += 1

        self.send()
        registration = registry.find("orders", "mail")
        assert registration
        self.registration = registration
        self.group: ConsumerGroup = subscribe(registration, "default", "earliest")

    def send(self) -> None:
        count = self.random.randint(1, 6)
        send_many([Outgoing("orders", n, key="k") for n in range(count)])
        sequence("default")
        self.sent += count

    def claim(self) -> None:
        claimer = Claimer(self.group, "gone", "thread", "default")
        if delivery := claimer.claim(self.random.randint(1, 5), MINUTE):
            self._hold(Handling(delivery, self.registration, self._limits()))

    def claim_retry(self) -> None:
        claimer = Claimer(self.group, "gone", "thread", "default")
        if claimed := claimer.claim_retry(MINUTE):
            self._hold(Handling(claimed[0], self.registration, self._limits(), retry=claimed[1]))

    def handle(self) -> None:
        if self.held:
            handling = self.held.pop(self.random.randrange(len(self.held)))
            with pytest.MonkeyPatch.context() as patch:
                # Some are stopped in the middle, and give the rest back.
                calls = self.random.choice([99, self.random.randint(0, 3)])
                patch.setattr(handling, "_may_go_on", iter([True] * calls + [False] * 99).__next__)
                with suppress(LeaseLost):
                    handling.run()

    def expire(self) -> None:
        advance(LONG_AFTER)
        sweep("default")

    def back(self) -> None:
        position = Cursor.objects.get(replay=0).next_offset
        held = Delivery.objects.filter(pk=Cursor.objects.get(replay=0).open_delivery or 0).first()
        position = held.progress if held else position
        target = str(self.random.randint(0, position))
        Reset(self.group, towards(Target.parse(target)), "default").run()

    def back_and_undo(self) -> None:
        self.back()
        self.random.choice([self.claim, self.handle, self.expire, lambda: None])()
        with suppress(NothingToUndo):  # it was there already
            Reset(self.group, None, "default").run()

    def replay(self) -> None:
        first = self.random.randint(0, self.sent - 1)
        end = self.random.randint(first + 1, self.sent)
        partition = Partition.objects.select_related("topic").get()
        start(self.group, [Span(partition, first, end)], "default")

    def cancel(self) -> None:
        newest = Cursor.objects.order_by("-replay")[0].replay
        with suppress(UnknownReplay):  # it has ended
            cancel(self.group, self.random.randint(1, newest + 1), "default")

    def step(self) -> str:
        name = self.random.choice(list(STEPS))
        STEPS[name](self)
        return name

    def _hold(self, handling: Handling) -> None:
        self.held.append(handling)

    def _limits(self):
        return limits(self.group, self.registration, "default")


STEPS: dict[str, Callable[[World], None]] = {
    name: getattr(World, name)
    for name in (
        "send",
        "claim",
        "claim_retry",
        "handle",
        "expire",
        "back",
        "back_and_undo",
        "replay",
        "cancel",
    )
}


@pytest.mark.parametrize(
    "ordered",
    [
        pytest.param(False, id="plain", marks=pytest.mark.exhaustive),
        pytest.param(True, id="ordered"),
    ],
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (1, 2, 3))]
)
def test_nothing_is_lost_and_nothing_found_whatever_happens(seed: int, ordered: bool) -> None:
    world = World(seed, ordered=ordered)
    done: list[str] = []
    for _step in range(40):
        done.append(world.step())
        assert found() == [], done
    world.fails = False
    consume_the_rest("mail")
    assert found() == []
    assert set(world.seen) == set(range(world.sent)), done


# -- what is found --


@pytest.fixture
def read() -> ConsumerGroup:
    """Twenty orders are mailed in claims of three; the fourth of each five has failed."""

    @consumer("orders", group="mail", batch=3)
    def mail(messages):
        return {m: ValueError("no") for m in messages if m.offset % 5 == 3}

    send_many([Outgoing("orders", n) for n in range(20)])
    drain()
    return ConsumerGroup.objects.select_related("topic").get()


def reset(group: ConsumerGroup, to: str) -> None:
    Reset(group, towards(Target.parse(to)), "default").run()


def test_a_retry_that_was_taken_back_and_never_given_out_is_found(read: ConsumerGroup) -> None:
    reset(read, "6")
    assert found() == []
    Cursor.objects.update(next_offset=20)  # by hand: past what was taken back
    assert len([finding for finding in found() if finding.startswith("lost failure")]) >= 3


def test_what_an_undo_forgets_to_restore_is_found(read: ConsumerGroup) -> None:
    reset(read, "6")
    Reset(read, None, "default").run()
    Delivery.objects.filter(state=State.SKIPPED).delete()
    assert found() == []  # the claims of before cover it, and the retries wait
    RetryMessage.objects.filter(offset=13).delete()
    (finding,) = found()  # of the retry that was taken back
    taken = Delivery.objects.get(token="taken back", first_offset=13)
    assert finding.endswith(f"delivery {taken.pk}: nothing is known of offsets 13")


def test_what_is_skipped_again_is_no_lost_failure(read: ConsumerGroup) -> None:
    reset(read, "6")
    reset(read, "latest")
    assert found() == []
    assert list(RetryMessage.objects.values_list("offset", flat=True)) == [3]


def test_a_skip_of_any_length_covers_in_every_window(read: ConsumerGroup) -> None:
    send_many([Outgoing("orders", n) for n in range(60)])
    sequence("default")
    reset(read, "latest")
    assert found() == []
    skipped = Delivery.objects.filter(state=State.SKIPPED)
    skipped.update(kind=Kind.REPLAY)  # which covers nothing of the group
    (finding,) = found()
    assert finding == "uncovered in mail on orders/0: offsets 20 … 79 (60)"


def test_what_was_claimed_again_from_before_a_window_is_not_lost(read: ConsumerGroup) -> None:
    send_many([Outgoing("orders", n) for n in range(8)])  # 20 … 27; a window begins at 21
    sequence("default")
    claimer = Claimer(read, "gone", "thread", "default")
    claimer.claim(1, MINUTE)
    claimer.claim(7, MINUTE)  # 21 … 27
    reset(read, "18")
    again = claimer.claim(10, MINUTE)  # 18 … 27
    assert again
    settle(again, 28, max_retries=5)
    assert found() == []


def test_a_skip_that_begins_long_before_what_is_kept_covers_it(
    read: ConsumerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "WINDOW", 1000)
    send_many([Outgoing("orders", n) for n in range(3000)])
    sequence("default")
    reset(read, "latest")
    Message.objects.filter(offset__lt=2500).delete()
    Partition.objects.update(first_offset=2500)
    RetryMessage.objects.all().delete()
    assert found() == []
