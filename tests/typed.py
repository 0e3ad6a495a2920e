"""An order as each kind of type that @consumer(body=…) takes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NotRequired
from uuid import UUID

import msgspec
import pydantic
from typing_extensions import TypedDict


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    quantity: int


@dataclass
class DataclassOrder:
    id: UUID
    at: datetime
    day: date
    total: Decimal
    colour: Colour
    lines: list[Line]
    rates: dict[str, float] = dataclasses.field(default_factory=dict)
    wait: timedelta | None = None


class TypedDictOrder(TypedDict):
    id: UUID
    at: datetime
    day: date
    total: Decimal
    colour: Colour
    lines: list[Line]
    rates: NotRequired[dict[str, float]]
    wait: NotRequired[timedelta | None]


class StructOrder(msgspec.Struct):
    id: UUID
    at: datetime
    day: date
    total: Decimal
    colour: Colour
    lines: list[Line]
    rates: dict[str, float] = {}  # a Struct copies it
    wait: timedelta | None = None


class ModelOrder(pydantic.BaseModel):
    id: UUID
    at: datetime
    day: date
    total: Decimal
    colour: Colour
    lines: list[Line]
    rates: dict[str, float] = {}
    wait: timedelta | None = None


@pydantic.dataclasses.dataclass
class PydanticOrder:
    id: UUID
    at: datetime
    day: date
    total: Decimal
    colour: Colour
    lines: list[Line]
    rates: dict[str, float] = dataclasses.field(default_factory=dict)
    wait: timedelta | None = None


TYPES = [DataclassOrder, TypedDictOrder, StructOrder, ModelOrder, PydanticOrder]


def fields(**changes: Any) -> dict[str, Any]:
    """The fields of an order with all that a body may have."""
    values = {
        "id": UUID("6fa459ea-ee8a-3ca4-894e-db77e160355e"),
        # A plain dict, as a TypedDict is one, has milliseconds.
        "at": datetime(2026, 11, 24, 8, 0, 0, 123000, tzinfo=UTC),
        "day": date(2026, 11, 24),
        "total": Decimal("9.90"),
        "colour": Colour.RED,
        "lines": [Line("A7", 1), Line("A8", 2)],
        "rates": {"eur": 1.5},
        "wait": timedelta(seconds=90),
    }
    return values | changes


def as_json(**changes: Any) -> dict[str, Any]:
    """What is sent of it, as any other program would send it."""
    values = {
        "id": "6fa459ea-ee8a-3ca4-894e-db77e160355e",
        "at": "2026-11-24T08:00:00.123Z",
        "day": "2026-11-24",
        "total": "9.90",
        "colour": "red",
        "lines": [{"sku": "A7", "quantity": 1}, {"sku": "A8", "quantity": 2}],
        "rates": {"eur": 1.5},
        "wait": "PT90S",
    }
    return values | changes
