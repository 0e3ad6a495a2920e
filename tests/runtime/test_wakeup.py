"""Announcements to Redis: coalesced, never in the way, never lost while Redis is there."""

from __future__ import annotations

import json
import threading
import time

import pytest

from streams import wakeup
from streams.wakeup import EVERY, Announcer, Listener
from tests.processes import wait_for


class FakeRedis:
    """Publishes into a list, and lets the test hold a publication up."""

    def __init__(self):
        self.published = []
        self.topics = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def publish(self, channel, message):
        self.begun.set()
        self.go_on.wait(10)
        self.published.append(channel)
        self.topics.append(json.loads(message))


@pytest.fixture
def redis(monkeypatch):
    fake = FakeRedis()
    monkeypatch.setattr(wakeup, "_redis", lambda: fake)
    return fake


@pytest.fixture
def announcer(redis):
    """One that has nothing to say any more when the next test has another Redis."""
    announcer = Announcer()
    yield announcer
    redis.go_on.set()
    wait_for(lambda: not announcer._pending and not announcer._telling)


def test_an_announcement_is_published(redis, announcer):
    announcer.announce("ems:wake:x")
    wait_for(lambda: redis.published)
    assert redis.published == ["ems:wake:x"]


def test_many_announcements_in_a_moment_are_few_publications(redis, announcer):
    for _ in range(1000):
        announcer.announce("ems:wake:x")
    announcer.flush()
    wait_for(lambda: redis.published)
    assert len(redis.published) < 100


def test_an_announcement_during_a_publication_is_published_too(redis, announcer):
    """The consumers may have looked before this second commit."""
    redis.go_on.clear()
    announcer.announce("ems:wake:x")
    assert redis.begun.wait(10)
    announcer.announce("ems:wake:x")
    redis.go_on.set()
    wait_for(lambda: len(redis.published) == 2)


def test_announcing_does_not_wait_for_a_publication(redis, announcer):
    redis.go_on.clear()
    started = time.monotonic()
    for _ in range(100):
        announcer.announce("ems:wake:x")
    assert time.monotonic() - started < 1
    redis.go_on.set()


def test_each_alias_has_a_channel_of_its_own(redis, announcer):
    announcer.announce("ems:wake:x")
    announcer.announce("other")
    wait_for(lambda: len(set(redis.published)) == 2)


@pytest.mark.parametrize(
    ("announced", "told"),
    [
        ([{"a"}, {"b"}, {"a"}], ["a", "b"]),
        ([{"a"}, set()], []),  # a reset, or a sequencer: any topic
        ([set(), {"a"}], []),
    ],
)
def test_what_is_announced_together_names_all_its_topics(redis, announcer, announced, told):
    redis.go_on.clear()
    announcer.announce("default", frozenset({"first"}))
    assert redis.begun.wait(10)
    for topics in announced:
        announcer.announce("default", frozenset(topics))
    redis.go_on.set()
    wait_for(lambda: len(redis.topics) == 2)
    assert redis.topics == [["first"], told]


@pytest.mark.parametrize(
    ("message", "told"),
    [(b'["mine", "other"]', [{"mine"}]), (b'["other"]', []), (b"[]", [EVERY])],
)
def test_a_consumer_is_woken_for_its_own_topics(message, told):
    woken: list[object] = []
    listener = Listener("default", {"mine"}, woken.append)

    class Subscription:
        def get_message(self, timeout):
            listener.stop()
            return {"data": message}

    listener._listen(Subscription())
    assert woken == told


@pytest.mark.redis
@pytest.mark.django_db
def test_a_real_redis_wakes_who_consumes_the_topic(ems_settings):
    ems_settings(REDIS="redis")
    woken: list[object] = []
    listener = Listener("default", {"mine"}, woken.append)
    listener.start()
    wait_for(lambda: woken)  # it listens from now on
    announcer = Announcer()
    announcer.announce(wakeup.channel("default"), frozenset({"other"}))
    wait_for(lambda: not announcer._pending and not announcer._telling)
    announcer.announce(wakeup.channel("default"), frozenset({"mine"}))  # comes after the other one
    wait_for(lambda: len(woken) > 1)
    listener.stop()
    assert len(woken) == 2


def test_an_error_of_redis_is_survived(redis, monkeypatch):
    monkeypatch.setattr(wakeup, "RECONNECT_SECONDS", 0.01)
    publish, errors = redis.publish, [ConnectionError("gone")]

    def fail_once(channel, message):
        if errors:
            raise errors.pop()
        publish(channel, message)

    monkeypatch.setattr(redis, "publish", fail_once)
    announcer = Announcer()
    announcer.announce("ems:wake:x")
    wait_for(lambda: not errors)
    announcer.announce("ems:wake:x")
    wait_for(lambda: redis.published)


def test_the_last_word_has_a_limit(redis):
    announcer = Announcer()
    redis.go_on.clear()
    announcer.announce("ems:wake:x")
    started = time.monotonic()
    announcer.flush()
    assert time.monotonic() - started < 5 * wakeup.LAST_WORD_SECONDS
    redis.go_on.set()


def test_the_last_word_is_waited_for(redis):
    announcer = Announcer()
    announcer.announce("ems:wake:x")
    announcer.flush()
    assert redis.published
