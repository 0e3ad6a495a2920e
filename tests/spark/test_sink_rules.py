"""The sink refuses what ``send_many()`` refuses, and stores what it stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjobs.errors import BadRow, SparkJobsError
from sparkjobs.instants import microseconds
from sparkjobs.sink import rules, topics
from sparkjobs.sink.options import BODY_TYPES, MAX_DEDUP_WINDOW
from streams import body, conf
from streams.errors import StreamsError
from streams.models.message import BodyType
from streams.names import MAX_KEY, MAX_TAG, text_of_key, valid_new_name, validated_name
from streams.produce import dedup
from streams.produce.access import WRITABLE
from streams.produce.outgoing import _headers, checked_due
from streams.unserializable import DEEPEST

pytestmark = pytest.mark.any_database

REFUSED = "refused"


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (StreamsError, SparkJobsError):
        return REFUSED


def key_of_send(value: Any) -> Any:
    return None if value is None else validated_name(text_of_key(value), "key", MAX_KEY)


def tag_of_send(value: str) -> str:
    return value if value == "" else valid_new_name(value, "tag", MAX_TAG)


# Surrogates cannot be in a column of Spark.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
# Those that the rules tell apart.
TRICKY = ["", " ", "a b", " a", "a\n", "é", "e\u0301", "à", "日本", "²", "a/b", "x" * 64, "x" * 65]
TRICKY += ["x" * 255, "x" * 256, "\u200b", "\u0300", "a.b_c-d:e", "٣", "K"]


@settings(deadline=None)
@given(TEXTS | st.sampled_from(TRICKY) | st.integers(-(10**20), 10**20) | st.none())
def test_keys(value: Any) -> None:
    assert outcome(rules.checked_key, value) == outcome(key_of_send, value)


@settings(deadline=None)
@given(TEXTS | st.sampled_from(TRICKY) | st.text("abc.é-:_ ", max_size=70))
def test_tags(value: str) -> None:
    assert outcome(rules.checked_tag, value) == outcome(tag_of_send, value)


@settings(deadline=None)
@given(st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_headers_as_a_map_and_as_json(value: dict[str, str] | None) -> None:
    stored = None if value is None else _headers(value)
    assert rules.checked_headers(None if value is None else list(value.items())) == stored
    assert rules.checked_headers(None if value is None else json.dumps(value)) == stored


@pytest.mark.parametrize("value", ["[]", "{", '{"a": 1}', '{"a": null}', '{"a": "\\ud800"}'])
def test_headers_that_are_no_texts(value: str) -> None:
    with pytest.raises(BadRow):
        rules.checked_headers(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXTS, some, max_size=3),
    max_leaves=5,
)


def test_a_body_has_at_most_64_levels() -> None:
    assert DEEPEST == rules.DEEPEST == 64
    deepest = "[" * 63 + "1, {}" + "]" * 63
    assert rules.checked_body(deepest, "json") == (deepest.encode(), "json")
    with pytest.raises(BadRow, match="64 levels"):
        rules.checked_body(f"[{deepest}]", "json")


@settings(deadline=None)
@given(VALUES | st.binary(max_size=20))
def test_a_body_that_was_sent_is_stored_as_it_was(value: Any) -> None:
    try:
        raw, body_type = body.encode(value)
    except StreamsError:  # infinity
        return
    assert rules.checked_body(raw, body_type) == (raw, body_type)
    if not isinstance(value, str | bytes):
        return
    assert rules.checked_body(value, None) == (raw, body_type)


@pytest.mark.parametrize(
    ("value", "body_type"),
    [("NaN", "json"), ("{", "json"), ("[-Infinity]", "json"), (b"\xff", "json"), (b"\xff", "text")],
)
def test_a_body_that_is_not_what_it_says(value: Any, body_type: str) -> None:
    with pytest.raises(BadRow):
        rules.checked_body(value, body_type)


@settings(deadline=None)
@given(st.datetimes(datetime(1970, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis' way
def test_a_time_is_stored_as_that_of_a_send(at: datetime) -> None:
    due = checked_due(None, at)
    assert isinstance(due, datetime)
    assert rules.checked_due(microseconds(at)) == str(due.replace(tzinfo=None))


def test_the_fixed_numbers_are_the_same() -> None:
    assert (rules.MAX_KEY, rules.MAX_TAG) == (MAX_KEY, MAX_TAG)
    assert rules.MAX_DEDUP_KEY == dedup.MAX_DEDUP_KEY
    assert dedup.MAX_WINDOW == MAX_DEDUP_WINDOW
    assert dedup.slot_of(1, "k").key_hash == rules.hash_of("k")
    assert set(BODY_TYPES) == set(BodyType.values)
    assert set(topics.WRITABLE) == WRITABLE
    assert {name: conf.DEFAULTS[name] for name in topics.DEFAULTS} == topics.DEFAULTS
