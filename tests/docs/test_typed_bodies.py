"""The code of docs/guides/typed-bodies.md does what the page says, and prints what it shows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command

from streams import send
from streams.errors import NotSerializable
from streams.models import DeadMessage
from streams.testing import drain, sent
from tests.docs.documents import DOCS, blocks, files

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_registry")]

PAGE = DOCS / "guides" / "typed-bodies.md"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Provide the modules of the page; return the function that sends."""
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    for file, text in files(PAGE).items():
        name = file.removesuffix(".py").replace("/", ".")
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(text, vars(module))  # noqa: S102 - the block is ours
    found: Callable[..., None] = sys.modules["shop.checkout"].place
    return found


def test_the_order_that_is_placed_is_mailed(place) -> None:
    place("A7", Decimal("9.90"), [("tea", 2), ("cup", 1)])
    assert drain("mail").done == 1
    assert (mail.outbox[0].subject, mail.outbox[0].body) == ("Order A7", "3 units, 9.90 €")


def test_what_does_not_fit_is_a_dead_letter_with_the_text_of_the_page(place) -> None:
    place("A7", Decimal("9.90"), [("tea", 2)])
    (message,) = sent("orders")
    lines = [{"sku": "tea", "quantity": 2}, {"sku": "cup", "quantity": "one"}]
    send("orders", message.body | {"lines": lines})
    assert drain("mail").dead == 1
    letter = DeadMessage.objects.get()
    shown, refused = blocks(PAGE, "text")
    assert f"{letter.error_class.rpartition('.')[2]}: {letter.error}" == shown.strip()
    with pytest.raises(NotSerializable) as caught:
        place("A7", Decimal("9.90"), [("tea", 2), ("cup", "one")])
    assert str(caught.value) == refused.strip()


def printed(page: Any, of: str) -> tuple[list[str], str]:
    """Return the words of a command on the page, and what it prints there."""
    (console,) = (text for text in blocks(page, "console") if of in text and text[0] == "$")
    command, shown = console.removeprefix("$ ").split("\n", 1)
    return command.split()[2:], shown


def test_the_schema_is_that_of_the_page(place) -> None:
    words, shown = printed(PAGE, "ems_topics schema")
    out = StringIO()
    call_command(*words, stdout=out)
    assert out.getvalue() == shown


def test_the_type_of_spark_is_that_of_its_page(place) -> None:
    words, shown = printed(DOCS / "guides" / "spark-source-and-sink.md", "ems_topics schema")
    out = StringIO()
    call_command(*words, stdout=out)
    assert out.getvalue() == shown


def test_the_document_of_the_page_can_be_written(place, tmp_path, monkeypatch) -> None:
    (command,) = (text for text in blocks(PAGE, "console") if "asyncapi" in text)
    monkeypatch.chdir(tmp_path)
    call_command(*command.split()[2:], stdout=StringIO())
    found = json.loads((tmp_path / "asyncapi.json").read_text())
    assert found["info"] == {"title": "Shop", "version": "2026.11"}
    assert list(found["operations"]) == ["orders/mail"]
