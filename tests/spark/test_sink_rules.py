"""The sink stores what ``send_many()`` stores of the same values, and refuses bad ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjobs.errors import BadRow
from sparkjobs.instants import microseconds
from sparkjobs.sink import staging, topics
from streams import body, conf
from streams.errors import InvalidMessage, NotSerializable, StreamsError
from streams.models.message import BodyType
from streams.produce.access import WRITABLE
from streams.produce.outgoing import checked_due
from streams.rules.body import BODY_TYPES, DEEPEST
from streams.rules.message import headers_as_json

pytestmark = pytest.mark.any_database

# Surrogates cannot be in a column of Spark.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@settings(deadline=None)
@given(st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_headers_as_a_map_and_as_json(value: dict[str, str] | None) -> None:
    stored = None if value is None else headers_as_json(value)
    assert staging._headers(None if value is None else list(value.items())) == stored
    assert staging._headers(None if value is None else json.dumps(value)) == stored


@pytest.mark.parametrize("value", ["[]", "{", '{"a": 1}', '{"a": null}', '{"a": "\\ud800"}'])
def test_headers_that_are_no_texts(value: str) -> None:
    with pytest.raises((BadRow, InvalidMessage)):
        staging._headers(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXTS, some, max_size=3),
    max_leaves=5,
)


def test_a_body_has_at_most_64_levels() -> None:
    assert DEEPEST == 64
    deepest = "[" * 63 + "1, {}" + "]" * 63
    assert staging._body(deepest, "json") == (deepest.encode(), "json")
    with pytest.raises(NotSerializable, match="64 levels"):
        staging._body(f"[{deepest}]", "json")


@settings(deadline=None)
@given(VALUES | st.binary(max_size=20))
def test_a_body_that_was_sent_is_stored_as_it_was(value: Any) -> None:
    try:
        raw, body_type = body.encode(value)
    except StreamsError:  # infinity
        return
    assert staging._body(raw, body_type) == (raw, body_type)
    if not isinstance(value, str | bytes):
        return
    assert staging._body(value, None) == (raw, body_type)


@pytest.mark.parametrize(
    ("value", "body_type"),
    [("NaN", "json"), ("{", "json"), ("[-Infinity]", "json"), (b"\xff", "json"), (b"\xff", "text")],
)
def test_a_body_that_is_not_what_it_says(value: Any, body_type: str) -> None:
    with pytest.raises(NotSerializable):
        staging._body(value, body_type)


@settings(deadline=None)
@given(st.datetimes(datetime(1970, 1, 2), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis' way
def test_a_time_is_stored_as_that_of_a_send(at: datetime) -> None:
    due = checked_due(None, at)
    assert isinstance(due, datetime)
    assert staging._due(microseconds(at)) == str(due.replace(tzinfo=None))


def test_a_table_has_no_column_that_the_sink_does_not_know() -> None:
    from sparkjobs.sink.columns import COLUMNS, GIVEN
    from sparkjobs.source.schemas import LOADED

    assert set(LOADED.names) <= GIVEN | set(COLUMNS)
    assert not GIVEN & set(COLUMNS)


def test_the_fixed_values_are_the_same() -> None:
    assert set(BODY_TYPES) == set(BodyType.values)
    assert set(topics.WRITABLE) == WRITABLE
    assert {name: conf.DEFAULTS[name] for name in topics.DEFAULTS} == topics.DEFAULTS
