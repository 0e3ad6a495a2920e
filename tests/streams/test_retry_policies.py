"""Retry policies: their delays, their text form, and what becomes of one that is wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Exponential, Reject, Retry, consumer, send
from streams.conf import LADDER
from streams.consume import registry
from streams.consume.limits import limits
from streams.consume.outcome.backoff import Ladder, default_policy, parse_retry_policy, retry_policy
from streams.consume.outcome.failure import ProcessDied
from streams.consume.subscription import subscribe
from streams.errors import InvalidConsumer, InvalidRetryPolicy
from streams.log.sequencer import sequence
from streams.models import Consumer, ConsumerGroup, DeadMessage, Delivery, RetryMessage, UtcNow
from streams.steps.sweep import sweep
from streams.testing import drain
from tests.consuming import Process

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

NO = ValueError("no")
SECOND = timedelta(seconds=1)


class Asked:
    """A policy of the project's own, which notes what it is asked.

    Whether a death is the end is asked before, too.
    """

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        self.asked_of_death = []

    def delay_after(self, attempt, error):
        died = isinstance(error, ProcessDied)
        (self.asked_of_death if died else self.asked).append((attempt, error))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def fails(**options):
    @consumer("orders", group="mail", **options)
    def handle(message):
        raise NO

    return handle


def group() -> ConsumerGroup:
    """The group of the consumer above."""
    registration = registry.find("orders", "mail")
    assert registration
    return subscribe(registration, "default", "earliest")


def waits() -> timedelta:
    """How long the one retry waits, from now."""
    due_at, now = RetryMessage.objects.annotate(now=UtcNow()).values_list("due_at", "now").get()
    waiting: timedelta = due_at - now
    return waiting


# -- the delays --


def test_a_ladder_repeats_its_last_step():
    ladder = Ladder((1, 5), jitter=0)
    assert [ladder.delay_after(n, NO) for n in (1, 2, 3)] == [SECOND, 5 * SECOND, 5 * SECOND]


def test_exponential_grows_up_to_its_bound_also_after_many_attempts():
    policy = Exponential(first=1, factor=3, at_most=timedelta(seconds=20), jitter=0)
    delays = [policy.delay_after(n, NO).total_seconds() for n in (1, 2, 3, 4, 10**6)]
    assert delays == [1, 3, 9, 20, 20]


def test_exponential_of_factor_one_stays_as_it_is():
    assert Exponential(first=2, factor=1, jitter=0).delay_after(9, NO) == 2 * SECOND


def test_jitter_spreads_a_delay_by_its_share():
    policy = Exponential(first=100, factor=1, at_most=100, jitter=0.1)
    delays = {policy.delay_after(1, NO).total_seconds() for _ in range(200)}
    assert len(delays) > 100
    assert 90 <= min(delays) < max(delays) <= 110


@pytest.mark.parametrize(
    "arguments",
    [
        {"first": 0},
        {"first": -1},
        {"first": "1s"},
        {"first": float("nan")},
        {"first": True},
        {"first": 10, "at_most": 9},
        {"at_most": timedelta(days=40_000)},
        {"factor": 0.5},
        {"factor": "2"},
        {"jitter": 1},
        {"jitter": -0.1},
    ],
)
def test_exponential_refuses_what_makes_no_sense(arguments):
    with pytest.raises(InvalidRetryPolicy):
        Exponential(**arguments)


@pytest.mark.parametrize("value", [[], [0], [-1], ["1m"], 5, "1m", Asked, object(), {1: 2}])
def test_the_decorator_refuses_what_is_no_policy(value):
    with pytest.raises(InvalidRetryPolicy):
        fails(retry=value)


def test_a_broadcast_consumer_has_no_retries():
    with pytest.raises(InvalidConsumer):
        fails(retry=[1], mode="broadcast")


# -- as text --


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("10s, 1m,1.5h", Ladder((10, 60, 5400))),
        ("90", Ladder((90,))),
        ("1 d", Ladder((86400,))),
        ("250ms", Ladder((0.25,))),
        ("exponential()", Exponential()),
        (
            "Exponential(first=10s, factor=3, at_most=1h, jitter=0)",
            Exponential(first=10 * SECOND, factor=3, at_most=3600 * SECOND, jitter=0),
        ),
    ],
)
def test_a_policy_is_read_from_text(text, policy):
    assert parse_retry_policy(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "10s,", "0s", "-1s", "1 week", "nan", "1e3", "10s 1m", "99999999d"),
        *("exponential", "exponential(1s)", "exponential(first=1s, first=2s)"),
        *("exponential(base=2)", "exponential(factor=x)", "exponential(factor=0)", "linear(1s)"),
    ],
)
def test_a_text_that_is_no_policy_is_refused(text):
    with pytest.raises(InvalidRetryPolicy):
        parse_retry_policy(text)


# -- in force --


def test_a_failed_message_waits_as_the_policy_of_its_group_says():
    policy = Asked(timedelta(hours=3))
    fails(retry=policy)
    send("orders", 1)
    assert drain().failed == 1
    assert timedelta(hours=2.9) < waits() <= timedelta(hours=3)
    assert policy.asked == [(1, NO)]


def test_a_policy_that_is_false_is_a_policy():
    class Empty(Asked):
        def __len__(self):
            return 0

    fails(retry=Empty(timedelta(hours=3)))
    send("orders", 1)
    drain()
    assert waits() > timedelta(hours=2.9)


def test_none_gives_up_at_once():
    fails(retry=Asked(None))
    send("orders", 1)
    result = drain()
    assert (result.failed, result.dead) == (1, 1)
    assert DeadMessage.objects.get().attempts == 1


@pytest.mark.parametrize("answer", [RuntimeError("a bug"), 5, -SECOND, timedelta(days=10**6), "1m"])
def test_a_policy_that_fails_leaves_it_to_the_ladder_and_loses_nothing(answer, caplog):
    fails(retry=Asked(answer))
    send("orders", 1)
    drain()
    assert 0.8 * LADDER[0] * SECOND - SECOND < waits() <= 1.2 * LADDER[0] * SECOND
    assert "EMS['RETRY_DELAYS'] decides" in caplog.text


def test_what_the_handler_says_is_stronger_than_the_policy():
    policy = Asked(timedelta(hours=3))
    errors = iter([Retry("later", delay=60), Reject("never")])

    @consumer("orders", group="mail", retry=policy, batch=None)
    def handle(message):
        raise next(errors)

    send("orders", 1)
    drain()
    assert timedelta(seconds=50) < waits() <= timedelta(seconds=60)
    RetryMessage.objects.update(due_at=UtcNow())
    assert drain().dead == 1
    assert policy.asked == []


def test_max_retries_holds_whatever_the_policy_says():
    fails(retry=Asked(SECOND), max_retries=0)
    send("orders", 1)
    assert drain().dead == 1


def test_the_text_of_the_group_is_stronger_than_the_decorator():
    fails(retry=[1])
    send("orders", 1)
    ConsumerGroup.objects.filter(pk=group().pk).update(retry_policy="2h")
    drain()
    assert timedelta(hours=1.5) < waits() < timedelta(hours=2.5)


def test_a_text_that_was_written_past_the_admin_is_ignored_and_said(caplog):
    fails(retry=[1])
    of_mail = group()
    of_mail.retry_policy = "whenever"
    found = limits(of_mail, registry.find("orders", "mail"), "default")
    assert found.retry == Ladder((1,))
    assert "whenever" in caplog.text


def test_without_one_the_ladder_of_the_settings_holds(ems_settings):
    ems_settings(RETRY_DELAYS=[7])
    assert default_policy() == Ladder((7,)) == retry_policy([7 * SECOND])


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("gives_up", [False, True])
def test_after_a_crash_the_policy_is_asked_with_the_reason(ordered, gives_up):
    policy = Asked(None if gives_up else timedelta(hours=3))
    fails(retry=policy, ordered=ordered)
    send("orders", 1)
    process = Process("mail")
    sequence("default")
    process.claim(1).start(SECOND)
    Consumer.objects.all().delete()
    Delivery.objects.update(deadline=UtcNow(-SECOND))
    assert sweep("default") == 1
    assert {attempt for attempt, _error in policy.asked_of_death} == {1}
    assert DeadMessage.objects.count() == gives_up
    if not ordered:
        assert RetryMessage.objects.count() == (not gives_up)
