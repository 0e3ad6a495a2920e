"""ems_topics schema and asyncapi: what consumers say of bodies, for programs of others."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import msgspec
import pydantic
import pytest
from django.core.management import CommandError, call_command

from streams import consumer, send
from streams.operate.topics import create
from streams.testing import drain
from streams.typed.known import typed_body
from streams.typed.spark import spark_type
from tests.typed import TYPES, StructOrder, as_json

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_registry")]


class Line(msgspec.Struct):
    sku: str


class Seen(pydantic.BaseModel):
    """Another line than the one that StructOrder has."""

    lines: list[Line2]
    before: Seen | None = None


class Line2(pydantic.BaseModel):
    sku: str


def handle(message: Any) -> None:
    """Send a mail.

    And no more.
    """


def said(*words: str) -> Any:
    out = StringIO()
    call_command("ems_topics", *words, stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


# -- schema --


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_the_schema_accepts_what_the_consumer_accepts(kind):
    consumer("orders", group="mail", body=kind)(handle)
    schema = said("schema", "orders")
    assert schema["title"] == kind.__name__
    valid = jsonschema_rs.validator_for(schema).is_valid
    assert valid(as_json())
    assert not valid(as_json(lines=[{"sku": "A7", "quantity": "one"}]))
    assert not valid(as_json(colour="green"))


def test_groups_with_one_schema_have_one():
    consumer("orders", group="mail", body=StructOrder)(handle)
    consumer("orders", group="board", body=StructOrder)(lambda message: None)
    consumer("orders", group="log")(lambda message: None)
    consumer("films", group="mail", body=Seen)(handle)
    assert "allOf" not in said("schema", "orders")


def test_if_groups_differ_the_schema_accepts_what_all_accept_and_the_command_says_so():
    consumer("orders", group="mail", body=StructOrder)(handle)
    consumer("orders", group="board", body=Seen)(handle)
    out, err = StringIO(), StringIO()
    call_command("ems_topics", "schema", "orders", stdout=out, stderr=err)
    says = "The groups expect different types (board: Seen, mail: StructOrder)."
    assert err.getvalue().strip() == says
    schema = json.loads(out.getvalue())
    assert schema["$comment"] == says
    valid = jsonschema_rs.validator_for(schema).is_valid
    assert valid(as_json())
    assert valid(as_json(before={"lines": [{"sku": "A7"}]}))
    assert not valid({"lines": []})
    assert not valid(as_json(before={"lines": 1}))
    assert said("schema", "orders", "--group", "board")["title"] == "Seen"


def test_two_classes_of_one_name_are_told_apart():
    class Seen(msgspec.Struct):
        at: int

    consumer("orders", group="mail", body=Seen)(handle)
    consumer("orders", group="board", body=globals()["Seen"])(handle)
    assert len(said("schema", "orders")["$defs"]) == 2
    assert len(said("asyncapi")["components"]["schemas"]) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["films"], "No consumer of films says a type of its bodies"),
        (["orders", "--group", "log"], "Group log of orders says no type of its bodies"),
        (["orders", "--spark"], "The groups expect different types .* Say --group"),
    ],
)
def test_what_the_command_cannot_say_is_an_error(words, says):
    consumer("orders", group="mail", body=StructOrder)(handle)
    consumer("orders", group="board", body=Seen)(handle)
    consumer("orders", group="log")(handle)
    with pytest.raises(CommandError, match=says):
        said("schema", *words)


# -- Spark --


def test_spark_has_a_type_for_what_it_can_read():
    consumer("orders", group="mail", body=StructOrder)(handle)
    out = StringIO()
    call_command("ems_topics", "schema", "orders", "--spark", stdout=out)
    assert out.getvalue().strip() == (
        "STRUCT<id: STRING, at: STRING, day: DATE, total: STRING, colour: STRING,"
        " lines: ARRAY<STRUCT<sku: STRING, quantity: BIGINT>>, rates: MAP<STRING, DOUBLE>,"
        " wait: STRING>"
    )


def test_what_spark_has_no_type_for_is_text():
    class Odd(pydantic.BaseModel):
        number: int | None
        either: int | str
        pair: tuple[int, str]
        anything: Any
        again: Seen
        name: int = pydantic.Field(alias="the `name`")

    assert spark_type(typed_body(Odd).schema()) == (
        "STRUCT<number: BIGINT, either: STRING, pair: ARRAY<STRING>, anything: STRING,"
        " again: STRUCT<lines: ARRAY<STRUCT<sku: STRING>>, before: STRING>, `the ``name```: BIGINT>"
    )


# -- AsyncAPI --


@pytest.fixture
def shop(clean_registry: None) -> None:
    """Two topics with types, one of the tables alone, and one that no consumer has a type for."""
    consumer("orders", group="mail", body=StructOrder, ordered=True, tags=["web"])(handle)
    consumer("orders", group="board", body=Seen, mode="broadcast")(lambda message: None)
    consumer("orders", group="log")(lambda message: None)
    consumer("shop:filme/ä".replace("/", "."), group="ü", body=Seen)(lambda message: None)
    create("quiet", 2, "default")
    consumer("left", group="old")(lambda message: None)
    send("left", 1)
    drain("old")


def resolved(document: Any, ref: str) -> Any:
    assert ref.startswith("#/"), ref
    found = document
    for step in ref.removeprefix("#/").split("/"):
        found = found[unquote(step).replace("~1", "/").replace("~0", "~")]
    return found


def refs(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        return own + [ref for one in part.values() for ref in refs(one)]
    return [ref for one in part for ref in refs(one)] if isinstance(part, list) else []


def test_the_document_has_all_topics_groups_and_types(shop):
    found = said("asyncapi")
    assert sorted(found["channels"]) == ["left", "orders", "quiet", "shop:filme.ä"]
    assert sorted(found["operations"]) == [
        *("left/old", "orders/board", "orders/log", "orders/mail", "shop:filme.ä/ü"),
    ]
    assert sorted(found["components"]["schemas"]) == ["Seen", "StructOrder"]
    assert sorted(found["channels"]["orders"]["messages"]) == ["Seen", "StructOrder"]
    assert "payload" not in found["channels"]["quiet"]["messages"]["any"]
    assert found["operations"]["orders/mail"] == {
        "action": "receive",
        "channel": {"$ref": "#/channels/orders"},
        "summary": "Send a mail.",
        "messages": [{"$ref": "#/channels/orders/messages/StructOrder"}],
        "x-ems": {
            "group": "mail",
            "mode": "cluster",
            "ordered": True,
            "tags": ["web"],
            "delivery": "at least once",
        },
    }
    assert "messages" not in found["operations"]["orders/log"]  # it gets all of its channel


def test_a_group_that_only_the_tables_know_is_in_it_too(shop):
    from streams.consume import registry

    registry._registered.clear()
    found = said("asyncapi")
    assert found["operations"]["left/old"]["x-ems"]["mode"] == "cluster"
    assert found["components"]["schemas"] == {}


def test_every_reference_of_the_document_leads_to_something(shop):
    found = said("asyncapi")
    every = refs(found)
    assert len(every) > 10
    assert all(resolved(found, ref) for ref in every)
    for operation in found["operations"].values():
        channel = operation["channel"]["$ref"]
        assert all(one["$ref"].startswith(f"{channel}/messages/") for one in refs_of(operation))


def refs_of(operation: dict[str, Any]) -> list[dict[str, str]]:
    return list(operation.get("messages", []))


def test_the_schemas_of_the_document_accept_what_consumers_accept(shop):
    found = said("asyncapi")
    schema = {"$ref": "#/components/schemas/StructOrder", "components": found["components"]}
    valid = jsonschema_rs.validator_for(schema).is_valid
    assert valid(as_json())
    assert not valid(as_json(lines=[{"sku": 1, "quantity": 1}]))


# What AsyncAPI 3.0 says of the parts that a document of EMS has.
STRUCTURE = {
    "type": "object",
    "required": ["asyncapi", "info"],
    "additionalProperties": False,
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "info": {
            "type": "object",
            "required": ["title", "version"],
            "properties": {"title": {"type": "string"}, "version": {"type": "string"}},
            "additionalProperties": False,
        },
        "channels": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "address": {"type": ["string", "null"]},
                    "messages": {
                        "type": "object",
                        "additionalProperties": {"$ref": "#/$defs/message"},
                        "propertyNames": {"pattern": r"^[A-Za-z0-9._-]+$"},
                    },
                },
            },
        },
        "operations": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["action", "channel"],
                "additionalProperties": False,
                "patternProperties": {"^x-[A-Za-z0-9._-]+$": True},
                "properties": {
                    "action": {"enum": ["send", "receive"]},
                    "channel": {"$ref": "#/$defs/reference"},
                    "summary": {"type": "string"},
                    "messages": {"type": "array", "items": {"$ref": "#/$defs/reference"}},
                },
            },
        },
        "components": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "schemas": {
                    "type": "object",
                    "propertyNames": {"pattern": r"^[A-Za-z0-9._-]+$"},
                    "additionalProperties": {"type": "object"},
                },
            },
        },
    },
    "$defs": {
        "reference": {
            "type": "object",
            "required": ["$ref"],
            "additionalProperties": False,
            "properties": {"$ref": {"type": "string", "format": "uri-reference"}},
        },
        "message": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string"},
                "contentType": {"type": "string"},
                "headers": {"type": "object", "required": ["type"]},
                "payload": {"$ref": "#/$defs/reference"},
            },
        },
    },
}


def test_the_document_has_the_structure_of_asyncapi(shop):
    validator = jsonschema_rs.validator_for(STRUCTURE, validate_formats=True)
    found = said("asyncapi", "--title", "Shop", "--release", "2.1")
    assert [str(error) for error in validator.iter_errors(found)] == []
    assert found["info"] == {"title": "Shop", "version": "2.1"}


def test_the_document_can_be_written_into_a_file(shop, tmp_path: Path):
    path = tmp_path / "asyncapi.json"
    out = StringIO()
    call_command("ems_topics", "asyncapi", "--output", str(path), stdout=out)
    assert out.getvalue().strip() == f"written: {path}"
    assert json.loads(path.read_text()) == said("asyncapi")
    with pytest.raises(CommandError, match="The file cannot be written"):
        said("asyncapi", "--output", str(tmp_path / "not" / "there"))
