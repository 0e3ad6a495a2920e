"""Typed bodies: what @consumer takes as a type, what send() writes of a value, what is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from streams import (
    Decision,
    Outgoing,
    ReceivedMessage,
    checkback,
    consumer,
    prepare,
    send,
    send_many,
)
from streams.body import JSON, decode, encode
from streams.conf import database
from streams.errors import InvalidBody, InvalidConsumer, MessageTooLarge, NotSerializable
from streams.models import Message
from streams.rules.body import DEEPEST
from streams.runtime_settings import system
from streams.testing import drain, sent
from streams.typed.known import _type_of, typed_body
from tests.consuming import registered
from tests.typed import (
    TYPES,
    Colour,
    DataclassOrder,
    Line,
    ModelOrder,
    StructOrder,
    as_json,
    fields,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]

TYPED = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)


@dataclass
class Price:
    value: float


@dataclass
class Nested:
    again: Nested | None = None


class Unknown:
    """A class that no library knows."""


@dataclass
class WithUnknown:
    value: Unknown


@dataclass
class Unfinished:
    value: NotDefined  # type: ignore[name-defined] # noqa: F821 - it is the point


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch):
    """Hides libraries, as if they were not installed."""

    def hide(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)
        _type_of.cache_clear()

    yield hide
    _type_of.cache_clear()


# -- what a value becomes, and what a body becomes --


@TYPED
def test_a_value_that_is_sent_arrives_as_it_was(kind):
    seen: list[Any] = []
    consumer("orders", group="mail", body=kind)(lambda message: seen.append(message.body))
    send("orders", kind(**fields()))
    send_many([Outgoing("orders", kind(**fields(lines=[])))])
    assert drain("mail").done == 2
    assert seen == [kind(**fields()), kind(**fields(lines=[]))]
    assert type(seen[0]) is type(kind(**fields()))


@TYPED
def test_other_programs_need_no_type_to_send_it(kind):
    seen: list[Any] = []
    consumer("orders", group="mail", body=kind)(lambda message: seen.append(message.body))
    send("orders", as_json())
    drain("mail")
    assert seen == [kind(**fields())]


@TYPED
def test_what_is_stored_is_json_that_any_consumer_can_read(kind):
    seen: list[Any] = []
    consumer("orders", group="mail")(lambda message: seen.append(message.body))
    send("orders", kind(**fields()))
    drain("mail")
    (found,) = seen
    assert found | {"wait": "", "at": ""} == as_json(wait="", at="")
    assert datetime.fromisoformat(found["at"]) == fields()["at"]


@TYPED
def test_the_type_may_leave_out_what_has_a_default(kind):
    raw = json.dumps({k: v for k, v in as_json().items() if k not in ("rates", "wait")}).encode()
    assert typed_body(kind).decode(raw, JSON)


@pytest.mark.parametrize("kind", [k for k in TYPES if k is not TYPES[1]], ids=lambda k: k.__name__)
def test_a_time_keeps_its_microseconds(kind):
    at = datetime(2026, 11, 24, 8, 0, 0, 123456, tzinfo=UTC)
    raw, _type = encode(kind(**fields(at=at)))
    assert typed_body(kind).decode(raw, JSON).at == at


def test_a_value_may_be_inside_of_a_dict_or_a_list():
    raw, body_type = encode(
        {"lines": [Line("A7", 1)], "colour": Colour.RED, "pair": (Line("B", 2),)}
    )
    assert (json.loads(raw), body_type) == (
        {
            "lines": [{"sku": "A7", "quantity": 1}],
            "colour": "red",
            "pair": [{"sku": "B", "quantity": 2}],
        },
        JSON,
    )


def test_a_prepared_message_takes_a_value_too():
    checkback("asked")(lambda message: Decision.UNKNOWN)
    one = prepare("orders", StructOrder(**fields()), biz="pay", biz_key="7", checker="asked")
    one.commit()
    assert sent("orders")[0].body["colour"] == "red"


def test_sent_finds_a_value():
    send("orders", Line("A7", 1))
    send("orders", Line("A8", 1))
    assert [one.body["sku"] for one in sent("orders", body=Line("A8", 1))] == ["A8"]


def test_a_copy_of_a_message_has_the_value_too():
    seen: list[ReceivedMessage] = []
    consumer("orders", group="mail", body=StructOrder)(seen.append)
    send("orders", as_json())
    drain("mail")
    for other in (copy.copy(seen[0]), pickle.loads(pickle.dumps(seen[0]))):  # noqa: S301 - ours
        assert other.body == StructOrder(**fields())
    assert decode(seen[0].raw_body, seen[0].body_type) == as_json()


# -- what cannot be sent --


@TYPED
def test_nan_is_refused_as_in_any_body(kind):
    with pytest.raises(
        NotSerializable, match=r'body\["rates"\]\["eur"\] is nan: send None, or text'
    ):
        send("orders", kind(**fields(rates={"eur": float("nan")})))
    assert not Message.objects.exists()


@pytest.mark.parametrize("kind", [DataclassOrder, StructOrder])
def test_a_value_that_no_consumer_of_the_type_could_read_is_not_sent(kind):
    wrong = kind(**fields(lines=[Line("A7", 1), Line("A8", "two")]))  # type: ignore[arg-type]
    with pytest.raises(NotSerializable) as caught:
        send_many([Outgoing("orders", 1), Outgoing("orders", wrong)])
    text = f"The body is no valid {kind.__name__}: $.lines[1].quantity: expected int, got str."
    assert str(caught.value) == text
    assert not Message.objects.exists()


def test_a_model_that_was_made_without_a_check_is_not_sent():
    with pytest.raises(NotSerializable, match="ModelOrder cannot be written"):
        send("orders", ModelOrder.model_construct(**fields(total="a lot")))
    assert not Message.objects.exists()


def test_what_a_library_cannot_write_is_not_sent():
    with pytest.raises(NotSerializable, match="WithUnknown"):
        send("orders", WithUnknown(Unknown()))
    with pytest.raises(NotSerializable, match="cannot be written"):
        send("orders", Price(Unknown()))  # type: ignore[arg-type]


def test_a_value_has_the_limits_of_any_body():
    deep = None
    for _level in range(DEEPEST + 1):
        deep = Nested(deep)
    with pytest.raises(NotSerializable, match=f"more than {DEEPEST} levels"):
        send("orders", deep)
    with pytest.raises(NotSerializable, match=f"more than {DEEPEST} levels"):
        send("orders", {"deep": [deep]})
    with pytest.raises(MessageTooLarge):
        send("orders", Line("A" * system("msgMaxSizeInBytes", database()), 1))
    assert not Message.objects.exists()


# -- what a body is refused for --

FAULTS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"lines": [{"sku": "A7", "quantity": 1}, {"sku": "A8", "quantity": "two"}]},
        "$.lines[1].quantity: expected int, got str",
        "$.lines[1].quantity: input should be a valid integer",
    ),
    (
        {"colour": "green"},
        "$.colour: invalid enum value 'green'",
        "$.colour: input should be 'red'",
    ),
    ({"id": "7"}, "$.id: invalid UUID", "$.id: input should be a valid UUID"),
    ({"at": "now"}, "$.at: invalid", "$.at: input should be a valid datetime"),
]


@TYPED
@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_the_error_names_the_place_of_the_fault(kind, number):
    changes, by_msgspec, by_pydantic = FAULTS[number]
    says = by_pydantic if hasattr(kind, "__pydantic_validator__") else by_msgspec
    with pytest.raises(InvalidBody) as caught:
        typed_body(kind).decode(json.dumps(as_json(**changes)).encode(), JSON)
    assert str(caught.value).startswith(says)


@TYPED
@pytest.mark.parametrize("body", [[], "text", 7, None])
def test_a_body_of_another_shape_is_refused(kind, body):
    with pytest.raises(InvalidBody, match=r"^\$: "):
        typed_body(kind).decode(json.dumps(body).encode(), JSON)


@TYPED
def test_text_and_bytes_are_refused_though_they_look_like_json(kind):
    for body_type in ("text", "bytes"):
        with pytest.raises(InvalidBody, match=rf"^\$: expected JSON, got {body_type}$"):
            typed_body(kind).decode(json.dumps(as_json()).encode(), body_type)


def test_a_fault_of_a_key_is_named_as_one():
    @dataclass
    class Counts:
        of: dict[int, int]

    kind = typed_body(Counts)
    raw, _type = encode(Counts({7: 1}))
    assert kind.decode(raw, JSON) == Counts({7: 1})
    with pytest.raises(InvalidBody) as caught:
        kind.decode(b'{"of": {"seven": 1}}', JSON)
    assert str(caught.value) == "$.of[a key]: expected int, got str"


def test_many_faults_of_a_model_are_counted():
    class Ints(pydantic.BaseModel):
        all: list[int]

    with pytest.raises(InvalidBody) as caught:
        typed_body(Ints).decode(json.dumps({"all": ["a"] * 1000}).encode(), JSON)
    assert str(caught.value).endswith("; 995 more")


def test_a_model_converts_what_it_says_and_a_dataclass_nothing(no_library):
    class Count(pydantic.BaseModel):
        value: int

    @dataclass
    class PlainCount:
        value: int

    assert typed_body(Count).decode(b'{"value": "7"}', JSON).value == 7
    for hidden in ((), ("msgspec",)):
        no_library(*hidden)
        with pytest.raises(InvalidBody):
            typed_body(PlainCount).decode(b'{"value": "7"}', JSON)


# -- which library, and which types --


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        (TYPES[0], "structs"),
        (TYPES[1], "structs"),
        (TYPES[2], "structs"),
        (TYPES[3], "pydantic_models"),
        (TYPES[4], "pydantic_models"),
    ],
)
def test_each_type_has_its_library(kind, module):
    assert type(typed_body(kind)).__module__ == f"streams.typed.{module}"


@pytest.mark.parametrize("kind", TYPES[:2], ids=lambda kind: kind.__name__)
def test_what_no_library_owns_is_read_by_pydantic_where_msgspec_is_not_installed(kind, no_library):
    no_library("msgspec")
    seen: list[Any] = []
    consumer("orders", group="mail", body=kind)(lambda message: seen.append(message.body))
    assert type(registered("orders", "mail").body).__module__ == "streams.typed.pydantic_models"
    send("orders", kind(**fields()))
    drain("mail")
    assert seen == [kind(**fields())]


@pytest.mark.parametrize("kind", TYPES[:2], ids=lambda kind: kind.__name__)
def test_without_a_library_the_decorator_says_what_to_install(kind, no_library):
    no_library("msgspec", "pydantic")
    with pytest.raises(InvalidConsumer, match="install msgspec or pydantic"):
        consumer("orders", group="mail", body=kind)


def test_without_a_library_a_dataclass_is_refused_as_before(no_library):
    no_library("msgspec", "pydantic")
    with pytest.raises(NotSerializable) as caught:
        send("orders", [Line("A7", 1)])
    says = "body[0] is of the type Line: send a dict, as dataclasses.asdict() makes it."
    assert str(caught.value) == says


@pytest.mark.parametrize("kind", [dict, int, "Order", Unknown, list[Line], Line("A7", 1)], ids=str)
def test_other_types_are_refused_by_the_decorator(kind):
    with pytest.raises(InvalidConsumer, match="body must be a dataclass, a TypedDict, a Struct"):
        consumer("orders", group="mail", body=kind)


@pytest.mark.parametrize("kind", [WithUnknown, Unfinished])
def test_a_type_that_its_library_cannot_read_is_refused_by_the_decorator(kind, no_library):
    for hidden, library in (((), "msgspec"), (("msgspec",), "pydantic")):
        no_library(*hidden)
        says = f"{library} cannot read bodies of the type {kind.__name__}: "
        with pytest.raises(InvalidConsumer, match=says):
            consumer("orders", group="mail", body=kind)


def test_a_model_that_is_not_complete_is_refused_by_the_decorator():
    class Incomplete(pydantic.BaseModel):
        value: NotDefined  # type: ignore[name-defined] # noqa: F821 - it is the point

    with pytest.raises(InvalidConsumer, match="NotDefined"):
        consumer("orders", group="mail", body=Incomplete)


# -- what is unknown --


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_a_field_that_the_type_does_not_have_is_ignored(kind):
    raw = json.dumps(as_json(coupon="X")).encode()
    assert typed_body(kind).decode(raw, JSON) == kind(**fields())


def test_a_field_that_the_type_forbids_is_refused():
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        a: int

    class StrictModel(pydantic.BaseModel, extra="forbid"):
        a: int

    for kind in (Strict, StrictModel):
        with pytest.raises(InvalidBody):
            typed_body(kind).decode(b'{"a": 1, "b": 2}', JSON)


def test_names_in_json_are_those_that_the_type_says():
    class Renamed(msgspec.Struct, rename="camel"):
        sent_at: int

    class Aliased(pydantic.BaseModel):
        sent_at: int = pydantic.Field(alias="sentAt")

        @pydantic.computed_field
        def twice(self) -> int:
            return 2 * self.sent_at

    for value in (Renamed(1), Aliased(sentAt=1)):
        raw, _type = encode(value)
        assert json.loads(raw) == {"sentAt": 1}
        assert typed_body(type(value)).decode(raw, JSON) == value


def test_a_message_can_be_made_with_a_type_in_a_unit_test():
    made = [field.name for field in dataclasses.fields(ReceivedMessage)]
    assert "typed" not in made
    values: dict[str, Any] = dict.fromkeys(made)
    message = ReceivedMessage[Any](**{**values, "raw_body": b"{}", "body_type": JSON})
    assert message.body == {}
