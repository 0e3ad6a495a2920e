"""Calls of two-phase messages through a topic, and messages handed on over HTTP."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from streams import Decision, consumer, send
from streams.errors import ConfigurationError
from streams.log.topics import forget
from streams.models import Access, DeadMessage, PreparedRow, PreparedState, Topic
from streams.outgoing import signature
from streams.testing import DrainResult, advance, drain, sent
from streams.two_phase.submission import GROUP, submitted
from tests.preparing import CHECKER, answering, answers, held, row, sent_keys

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

CALLS = "ems-two-phase"
PREPARE = {"ems-action": "prepare", "ems-topic": "orders", "ems-checker": CHECKER}


@pytest.fixture(autouse=True)
def group(clean_registry: None) -> None:
    answering(Decision.UNKNOWN)
    consumer(CALLS, group=GROUP, ordered=True, atomic=True, start="earliest")(submitted)


def call(body: Any = None, biz_key: str = "A7", **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    whose = {"ems-biz": "shop", "ems-biz-key": biz_key}
    send(CALLS, body, key=f"shop:{biz_key}", headers={**whose, **named})


def prepare_call(body: Any = None, biz_key: str = "A7", **headers: str) -> None:
    given = {name.replace("-", "_"): value for name, value in PREPARE.items()}
    call(body, biz_key, **{**given, **headers})


def handled() -> DrainResult:
    return drain(GROUP)


def test_the_consumer_is_there_if_the_setting_names_a_topic(ems_settings: Any) -> None:
    from importlib import reload

    import streams.consumers
    from streams.consume import registry

    registry._registered.clear()
    reload(streams.consumers)
    assert registry.find(CALLS, GROUP) is None
    ems_settings(TWO_PHASE_TOPIC=CALLS)
    reload(streams.consumers)
    found = registry.find(CALLS, GROUP)
    assert found is not None
    assert (found.ordered, found.atomic) == (True, True)


def test_a_message_is_prepared_and_committed_through_the_topic() -> None:
    prepare_call({"n": 1}, ems_key="k", ems_tag="new", ems_context='{"c": 1}', traceparent="00-1")
    assert handled().done == 1
    one = row()
    assert (one.key, one.tag, one.context, one.checker) == ("k", "new", {"c": 1}, CHECKER)
    assert one.headers == {"traceparent": "00-1", "ems-biz": "shop", "ems-biz-key": "A7"}
    call(ems_action="commit")
    assert handled().done == 1
    assert [m.body for m in sent("orders")] == [{"n": 1}]
    assert row().decided_by.startswith("caller:")


def test_a_call_that_comes_twice_does_no_harm() -> None:
    for _ in range(2):
        prepare_call("text")
    for _ in range(2):
        call(ems_action="commit")
    assert handled().done == 4
    assert sent_keys() == ["A7"]


def test_a_rollback_through_the_topic_sends_nothing() -> None:
    """TrustMessage's own consumer committed here."""
    prepare_call("text")
    call(ems_action="rollback")
    assert handled().done == 2
    assert row().state == PreparedState.ROLLED_BACK
    assert sent_keys() == []


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"ems_action": "commit"}, "UnknownPrepared"),
        ({"ems_action": "release"}, "is not an action"),
        ({}, "is not an action"),
        ({**PREPARE, "ems-topic": ""}, "InvalidName"),
        ({"ems-action": "prepare", "ems-checker": CHECKER}, "InvalidName"),
        ({**PREPARE, "ems-context": "{"}, "must be JSON"),
        ({**PREPARE, "ems-biz": "a b"}, "InvalidName"),
        ({**PREPARE, "ems-biz-key": "held"}, "PreparedConflict"),
    ],
    ids=str,
)
def test_what_can_never_succeed_is_a_dead_letter_at_once_and_blocks_nobody(
    headers: dict[str, str], error: str
) -> None:
    held("held", "another")
    call("text", **headers)
    prepare_call("text", "A8")
    result = handled()
    assert (result.done, result.dead) == (1, 1)
    letter = DeadMessage.objects.get()
    assert error in letter.error
    assert row("A8").state == PreparedState.PREPARED


def test_a_call_whose_topic_is_denied_is_retried_and_its_commit_waits() -> None:
    held("B1")  # makes the topic
    Topic.objects.filter(name="orders").update(access=Access.DENIED)
    forget()
    prepare_call("text")
    call(ems_action="commit")
    assert (handled().failed, DeadMessage.objects.count()) == (1, 0)
    Topic.objects.update(access=Access.READ_WRITE)
    forget()
    advance(timedelta(minutes=1))
    assert handled().done == 2
    assert sent_keys() == ["A7"]


def test_a_call_waits_some_minutes_for_a_checker_that_a_deployment_may_bring() -> None:
    prepare_call("text", ems_checker="shop.new")
    prepare_call("text", "A8", ems_checker="nobody")
    call(ems_action="commit")
    assert (handled().failed, DeadMessage.objects.count()) == (1, 0)
    answering(Decision.UNKNOWN, name="shop.new")
    done = dead = 0
    for _attempt in range(8):
        advance(timedelta(hours=1))
        result = handled()
        done, dead = done + result.done, dead + result.dead
    assert (done, dead) == (2, 1)
    letter = DeadMessage.objects.get()
    assert "UnknownChecker" in letter.error
    assert letter.attempts == 6
    assert row().state == PreparedState.SENT


@pytest.mark.django_db(transaction=True)
def test_calls_that_are_consumed_on_another_database_are_refused() -> None:
    """Their decision and their acknowledgement would not be one transaction."""
    got: list[Any] = []
    consumer(CALLS, group="other")(got.append)
    prepare_call("text")
    assert drain("other").done == 1
    with pytest.raises(ConfigurationError, match="'default' only"):
        submitted(got[0])
    assert not PreparedRow.objects.exists()


def test_a_webhook_hands_messages_on_with_limited_tries() -> None:
    from streams.forwarding import webhook

    with answers() as server:
        forward = webhook(server.url, "s3cret", allow_private=True, seconds=2)
        consumer("orders", group="partner", max_retries=1)(forward)
        send("orders", {"n": 1}, key="schlüssel")
        send("orders", b"\0")
        assert drain("partner").done == 2
        (_post, _path, headers, body), (*_rest, second, raw) = server.asked
        assert json.loads(body) == {"n": 1}
        assert headers["Ems-Id"] == "orders/0@0"
        assert headers["Content-Type"] == "application/json"
        at = int(headers["Ems-Signature"].partition(",")[0].removeprefix("t="))
        assert headers["Ems-Signature"] == signature("s3cret", at, body)
        assert (second["Content-Type"], raw) == ("application/octet-stream", b"\0")
        server.say({}, 500)
        send("orders", 3)
        assert drain("partner").failed == 1
        advance(timedelta(days=1))
        assert drain("partner").dead == 1
    assert Topic.objects.count() == 1
    assert not PreparedRow.objects.exists()


def test_a_webhook_names_a_topic_of_any_letters() -> None:
    from streams.forwarding import webhook

    with answers() as server:
        consumer("订单", group="partner")(webhook(server.url, allow_private=True, seconds=2))
        send("订单", 1, key="键")
        assert drain("partner").done == 1
        ((_post, _path, headers, _body),) = server.asked
    assert headers["Ems-Id"] == "%E8%AE%A2%E5%8D%95/0@0"
