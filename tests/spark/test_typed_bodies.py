"""Spark reads the bodies of a topic with the type that its consumer has."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from streams import send
from streams.log.sequencer import sequence
from streams.typed.known import typed_body
from streams.typed.spark import spark_type
from tests.docs.documents import DOCS, blocks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]


class Line(msgspec.Struct):
    sku: str
    quantity: int


class Placed(msgspec.Struct):
    number: str
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    total: Decimal
    lines: list[Line]
    rates: dict[str, float] = {}  # a Struct copies it


def test_the_example_of_the_page_reads_what_was_sent(read, spark: Any, option_file) -> None:
    at = datetime(2026, 11, 24, 8, 0, 0, 123456, tzinfo=UTC)
    lines = [Line("tea", 2), Line("cup", 1)]
    send("orders", Placed("A7", at, Decimal("9.90"), lines, {"eur": 1.5}))
    send("orders", "no JSON")
    sequence("default")
    page = DOCS / "guides" / "spark-source-and-sink.md"
    (example,) = (text for text in blocks(page, "python") if "from_json" in text)
    names = {"spark": spark, "schema": spark_type(typed_body(Placed).schema())}
    exec(example.replace("/srv/shop/ems.cnf", str(option_file)), names)  # noqa: S102 - it is ours
    placed: Any = names["placed"]
    (row,) = placed.toArrow().to_pylist()
    assert row["order"]["at"] == at
    assert (row["order"]["total"], dict(row["order"]["rates"])) == ("9.90", {"eur": 1.5})
    found: Any = names["lines"]
    assert found.toArrow().to_pylist() == [
        {"number": "A7", "line": {"sku": "tea", "quantity": 2}},
        {"number": "A7", "line": {"sku": "cup", "quantity": 1}},
    ]
