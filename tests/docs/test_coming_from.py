"""The command of docs/guides/coming-from.md moves each row of an outbox once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from streams.testing import sent
from tests.docs.documents import DOCS, files

PAGE = DOCS / "guides" / "coming-from.md"


@pytest.fixture
def outbox(transactional_db: None) -> Iterator[Any]:
    with isolate_apps("tests.hostapp"):

        class Outbox(models.Model):  # noqa: DJ008 - nobody prints it
            topic = models.CharField(max_length=100)
            key = models.CharField(max_length=100)
            payload = models.JSONField()

            class Meta:
                app_label = "hostapp"

        with connection.schema_editor() as editor:
            editor.create_model(Outbox)
        try:
            yield Outbox
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(Outbox)


@pytest.fixture
def command(outbox: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    shop = ModuleType("shop.models")
    shop.Outbox = outbox  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", shop)
    made: dict[str, Any] = {}
    (code,) = files(PAGE).values()
    exec(code, made)  # noqa: S102 - the block is ours
    return made["Command"]()


def test_the_command_moves_what_is_left(outbox: Any, command: Any) -> None:
    rows = [outbox(topic="orders", key=str(n), payload={"n": n}) for n in range(501)]
    outbox.objects.bulk_create(rows)
    command.handle()
    assert not outbox.objects.exists()
    assert [one.body for one in sent("orders")] == [{"n": n} for n in range(501)]


def test_a_batch_that_fails_moves_nothing_and_may_be_tried_again(
    outbox: Any, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.objects.create(topic="orders", key="1", payload={"n": 1})

    def die(*args: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(models.QuerySet, "delete", die)
        command.handle()
    assert (outbox.objects.count(), sent("orders")) == (1, [])
    command.handle()
    assert (outbox.objects.count(), len(sent("orders"))) == (0, 1)
